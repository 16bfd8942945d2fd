"""The HTTP API: what people and programs ask of a running server, and what it answers in JSON.

    problem    a refusal as status, what, why and a hint
    house      what the gate lends: broker, clock, waiting
    asking     requests: typed fields, unknown ones named
    topics     /api/v1/topics
    groups     /api/v1/groups: positions, lag, reset
    records    /api/v1/topics/{topic}/records: look and produce
    metrics    /metrics for Prometheus
    health     /healthz, /readyz
    guard      who may ask: Host and Origin
    app        the routes, and /openapi.json made of them

Invariants
- every answer that is not 2xx is JSON with what, why and a hint
- what would destroy something can be asked for with `dry_run` first
- a page of another site can neither change nor read anything here

Left to others: HTTP framing and sockets (gate), what is allowed (broker).
"""
