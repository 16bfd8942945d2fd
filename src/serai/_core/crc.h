/* The two checksums of serai, as C functions; checksums.c says how they work.
 *
 * Both follow zlib's convention: begin with 0, and crc(crc(0, a), b) is the checksum of a + b; the inversions before
 * and after are inside.  The functions are hidden: other extension modules reach them through crc.pxd.
 */
#ifndef SERAI_CRC_H
#define SERAI_CRC_H

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "serai supports Linux on x86-64 and aarch64"
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "serai supports little-endian machines only"
#endif

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

uint32_t serai_crc32c(uint32_t crc, const void *p, size_t n); /* Castagnoli: iSCSI, ext4, index24 */
uint32_t serai_crc32(uint32_t crc, const void *p, size_t n);  /* IEEE: zlib, gzip, Jafka messages */

/* Builds the tables and picks the best level; calling it again changes nothing.  The first checksum calls it too. */
void serai_crc_init(void);

/* The levels this machine has, slowest first: 0 is the portable one, serai_crc_levels() - 1 the one in use. */
int serai_crc_levels(void);
const char *serai_crc_level_name(int level);

/* The name of the level in use. */
const char *serai_crc_kind(void);

/* For tests: use this level from now on.  Returns 0, or -1 and changes nothing if the machine does not have it. */
int serai_crc_force(int level);

#pragma GCC visibility pop
#endif
