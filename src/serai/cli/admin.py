"""serai topic, subscription, group: what there is on a server, and changing it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from serai.cli.parser import Parser, add_output, add_server, amount
from serai.cli.terminal import USAGE, Failure, ask, counted, table

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable, Sequence

    Verbs = _SubParsersAction[Parser]

OUTPUTS = ("table", "json", "jsonl")
UNKNOWN = "-"  # a number that the server would have to open a log for


def add(nouns: Verbs) -> None:
    """Adds the three nouns."""
    _add_topic(
        nouns.add_parser("topic", help="topics of a server", description="Topics of a running server.").nouns("verb")
    )
    _add_subscription(
        nouns.add_parser(
            "subscription", help="who produces and consumes", description="Who may produce and consume, and how."
        ).nouns("verb")
    )
    _add_group(nouns.add_parser("group", help="positions and lag", description="How far consumers are.").nouns("verb"))


def _verb(
    verbs: Verbs, name: str, run: Callable[[Namespace], int], *names: str, text: str, aim: str, example: str
) -> Parser:
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", example=example)
    for each in names:
        parser.add_argument(each, metavar=each.upper())
    parser.set_defaults(run=run, aim=aim, dir="")
    add_server(parser)
    add_output(parser, OUTPUTS)
    return parser


def _add_topic(verbs: Verbs) -> None:
    _verb(verbs, "list", list_topics, text="say which topics there are", aim="list topics", example="serai topic list")
    parser = _verb(verbs, "create", create_topic, "topic", text="make a topic", aim="make topic {topic}",
                   example="serai topic create payments --partitions 4 --policy retention_ms=86400000")  # fmt: skip
    parser.add_argument("--partitions", type=amount, metavar="N", default=1, help="(default: 1)")
    _add_policy(parser)
    _verb(verbs, "describe", describe_topic, "topic", text="say everything about a topic", aim="describe topic {topic}",
          example="serai topic describe orders")  # fmt: skip
    parser = _verb(verbs, "alter", alter_topic, "topic", text="change settings of a topic, or add partitions",
                   aim="alter topic {topic}", example="serai topic alter orders --partitions 2")  # fmt: skip
    parser.add_argument("--partitions", type=amount, metavar="N", help="more of them; there are never fewer")
    _add_policy(parser)
    parser = _verb(verbs, "delete", delete_topic, "topic", text="delete a topic with everything in it",
                   aim="delete topic {topic}", example="serai topic delete orders --dry-run")  # fmt: skip
    _add_consent(parser)


def _add_subscription(verbs: Verbs) -> None:
    parser = _verb(verbs, "list", list_subscriptions, text="say who is subscribed to what", aim="list subscriptions",
                   example="serai subscription list --topic orders")  # fmt: skip
    _add_topic_option(parser)
    parser = _verb(verbs, "set", set_subscription, "topic", "app", text="subscribe an application, or change how",
                   aim="subscribe {app} to {topic}",
                   example="serai subscription set orders billing --role consumer --policy batch_size=100")  # fmt: skip
    _add_role(parser)
    _add_policy(parser)
    parser = _verb(verbs, "remove", remove_subscription, "topic", "app", text="end a subscription; positions stay",
                   aim="end the subscription of {app} to {topic}",
                   example="serai subscription remove orders billing --role consumer")  # fmt: skip
    _add_role(parser)


def _add_group(verbs: Verbs) -> None:
    parser = _verb(verbs, "list", list_groups, text="say which groups there are, with their lag", aim="list groups",
                   example="serai group list")  # fmt: skip
    _add_topic_option(parser)
    _verb(verbs, "describe", describe_group, "topic", "group", text="say how far a group is in each partition",
          aim="describe group {group} of {topic}", example="serai group describe orders billing")  # fmt: skip
    parser = _verb(verbs, "lag", show_lag, text="say how many messages each group has before it", aim="look at lag",
                   example="serai group lag --topic orders")  # fmt: skip
    _add_topic_option(parser)
    parser = _verb(verbs, "reset", reset_group, "topic", "group", text="set a group's positions",
                   aim="reset group {group} of {topic}",
                   example="serai group reset orders billing --to start --dry-run")  # fmt: skip
    parser._negative_number_matcher = re.compile(r"-\d+[smhd]?")  # argparse: these are values, not options
    parser.add_argument("--to", required=True, metavar="WHERE",
                        help="start | end | an offset | -N back | -10m (s, m, h, d) | time:MS | group:NAME")  # fmt: skip
    parser.add_argument("--partition", type=amount, metavar="N", help="only this one")
    _add_consent(parser)


def _add_policy(parser: Parser) -> None:
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting; without VALUE: back to the default",
    )


def _add_topic_option(parser: Parser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", help="only of this topic")


def _add_role(parser: Parser) -> None:
    parser.add_argument("--role", choices=("producer", "consumer"), required=True)


def _add_consent(parser: Parser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


# ---- what is shown -----------------------------------------------------------------------------------------


def show(args: Namespace, heads: Sequence[str], rows: list[dict[str, Any]], whole: Any) -> int:
    """Rows as a table of these columns, each as a line of JSON, or the whole answer."""
    if args.output == "json":
        print(json.dumps(whole, ensure_ascii=False, indent=2))
    elif args.output == "jsonl":
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    else:
        print(table(heads, [[_cell(row.get(head.replace(" ", "_"))) for head in heads] for row in rows]))
    return 0


def _cell(value: Any) -> object:
    if value is None:
        return UNKNOWN
    if isinstance(value, dict):
        return " ".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value if not isinstance(value, str) else printable(value)


def printable(text: str) -> str:
    """Text of others, safe for a terminal."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


def policy(args: Namespace) -> dict[str, Any]:
    """The settings of `--policy KEY=VALUE`; values are JSON where they are, else text."""
    found: dict[str, Any] = {}
    for word in args.policy:
        key, equals, text = word.partition("=")
        if not key:
            raise Failure(
                f"cannot read --policy {word}", "it names no setting", f"{args.parser.prog} --help", code=USAGE
            )
        try:
            found[key] = json.loads(text) if equals and text else None
        except ValueError:
            found[key] = text
    return found


def _request(args: Namespace, method: str, *path: str, **more: Any) -> Any:
    from serai.cli.remote import ask as ask_server

    return ask_server(args, method, list(path), **more)


# ---- topics ------------------------------------------------------------------------------------------------


def list_topics(args: Namespace) -> int:
    """All topics."""
    said = _request(args, "GET", "topics")
    return show(args, ("name", "partitions", "messages", "groups", "policy"), said["topics"], said)


def create_topic(args: Namespace) -> int:
    """One more topic."""
    said = _request(
        args, "POST", "topics", body={"name": args.topic, "partitions": args.partitions, "policy": policy(args)}
    )
    args.talk.say(f"topic {printable(args.topic)} is there, with {counted(len(said['partitions']), 'partition')}")
    return 0 if args.output == "table" else _described(args, said)


def describe_topic(args: Namespace) -> int:
    """Partitions, policy, subscriptions, groups."""
    return _described(args, _request(args, "GET", "topics", args.topic))


def _described(args: Namespace, said: dict[str, Any]) -> int:
    show(args, ("partition", "node", "epoch", "first", "end", "committed", "state"), said["partitions"], said)
    if args.output == "table":
        subscribed = [f"{printable(each['app'])} ({each['role']})" for each in said["subscriptions"]]
        print(f"\nset: {_cell(said['policy']) or 'nothing'}\nsubscribed: {', '.join(subscribed) or 'nobody'}")
    return 0


def alter_topic(args: Namespace) -> int:
    """Other settings, more partitions."""
    body = {"partitions": args.partitions, "policy": policy(args) or None}
    if body == {"partitions": None, "policy": None}:
        raise Failure(
            f"cannot alter topic {args.topic}", "nothing is to be changed", f"{args.parser.prog} --help", code=USAGE
        )
    return _described(args, _request(args, "PATCH", "topics", args.topic, body=body))


def delete_topic(args: Namespace) -> int:
    """A topic less."""
    said = _request(args, "DELETE", "topics", args.topic, query={"dry_run": 1})
    lost = said["lost"]
    args.talk.say(
        f"topic {printable(args.topic)}: {counted(lost['messages'])} in {counted(lost['partitions'], 'partition')} and the"
        f" positions of {counted(lost['groups'], 'group')} " + ("would be lost" if args.dry_run else "will be lost")
    )
    if args.dry_run:
        return 0 if args.output == "table" else show(args, (), [lost], said)
    consent(args, f"delete topic {args.topic}?")
    said = _request(args, "DELETE", "topics", args.topic)
    args.talk.say(f"topic {printable(args.topic)} is deleted")
    return 0 if args.output == "table" else show(args, (), [said["lost"]], said)


def consent(args: Namespace, question: str) -> None:
    """A yes, by flag or on the terminal."""
    if not args.yes and not ask(question):
        raise Failure(
            f"did not {args.aim.format(**vars(args))}", "nobody said yes", f"{args.parser.prog} ... --yes", code=USAGE
        )


# ---- subscriptions -----------------------------------------------------------------------------------------


def list_subscriptions(args: Namespace) -> int:
    """Who is subscribed."""
    said = _request(args, "GET", "subscriptions", query={"topic": args.topic})
    return show(args, ("topic", "app", "role", "policy"), said["subscriptions"], said)


def set_subscription(args: Namespace) -> int:
    """One more, or changed."""
    said = _request(
        args, "PUT", "topics", args.topic, "subscriptions", args.role, args.app, body={"policy": policy(args)}
    )
    return show(args, ("topic", "app", "role", "policy"), [said], said)


def remove_subscription(args: Namespace) -> int:
    """One less."""
    said = _request(args, "DELETE", "topics", args.topic, "subscriptions", args.role, args.app)
    args.talk.say(f"{printable(args.app)} is no {args.role} of {printable(args.topic)} any more")
    return 0 if args.output == "table" else show(args, (), [said["removed"]], said)


# ---- groups ------------------------------------------------------------------------------------------------


def list_groups(args: Namespace) -> int:
    """All groups."""
    said = _request(args, "GET", "groups", query={"topic": args.topic})
    return show(args, ("topic", "group", "lag", "delivered", "acked", "redelivered"), said["groups"], said)


def describe_group(args: Namespace) -> int:
    """A group by partition."""
    said = _request(args, "GET", "topics", args.topic, "groups", args.group)
    return show(args, ("partition", "position", "first", "end", "lag", "holder", "attempt"), said["partitions"], said)


def show_lag(args: Namespace) -> int:
    """Lag of every group in every partition."""
    said = _request(args, "GET", "groups", query={"topic": args.topic})
    rows = [
        {"topic": view["topic"], "group": view["group"], **row} for view in said["groups"] for row in view["partitions"]
    ]
    return show(args, ("topic", "group", "partition", "position", "end", "lag"), rows, rows)


def reset_group(args: Namespace) -> int:
    """Other positions: shown first, then made."""
    body = {"to": args.to, "partition": args.partition, "dry_run": True}
    path = ("topics", args.topic, "groups", args.group, "reset")
    said = _request(args, "POST", *path, body=body)
    heads = ("partition", "before", "after", "lag before", "lag after")
    if args.dry_run or args.output == "table":
        show(args, heads, said["partitions"], said)
    if args.dry_run:
        args.talk.say("nothing was changed")
        return 0
    consent(args, f"set {counted(len(said['partitions']), 'position')} of group {args.group}?")
    said = _request(args, "POST", *path, body=body | {"dry_run": False})
    args.talk.say(f"group {printable(args.group)} continues there")
    return 0 if args.output == "table" else show(args, heads, said["partitions"], said)
