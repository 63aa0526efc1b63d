"""How much is read of what others may have written, checked before memory is taken for it.

Each limit is many times what the largest real file needs, and far below what hurts.
"""

MB = 1 << 20

# a run, an evaluation, ledgers (2 MB), training curves: bytes
RECORD_BYTES = 64 * MB
# A person's own data: bytes of a file, and of all examples unpacked; pixels of an image before it is scaled;
# files of a folder; classes
OWN_BYTES, OWN_PIXELS, OWN_FILES, OWN_CLASSES = 8192 * MB, 50_000_000, 2_000_000, 10_000
# columns of a person's CSV file
OWN_COLUMNS = 1000
# weights of an exported network: bytes
WEIGHTS_BYTES = 4096 * MB
# What a pack may unpack to: so many times its own size, and so much in any case. Weights hardly shrink.
PACK_TIMES, PACK_LEAST = 4, 64 * MB
# of its first member
MANIFEST_BYTES = 16 * MB
