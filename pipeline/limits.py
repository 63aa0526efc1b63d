"""Limits on the size of foreign input, checked before memory is allocated.

Each limit is many times the size of the largest real file, and far below a harmful size.
"""

MB = 1 << 20

# bytes of a run, an evaluation, ledgers (at present 2 MB) or training curves
RECORD_BYTES = 64 * MB
# the user's own data: bytes of a file or of all unpacked examples, pixels of an image before it is scaled,
# files of a folder, and classes
OWN_BYTES, OWN_PIXELS, OWN_FILES, OWN_CLASSES = 8192 * MB, 50_000_000, 2_000_000, 10_000
# columns of the user's CSV file
OWN_COLUMNS = 1000
# lines of a person in them; far more would need so much noise that nothing is learned
OWN_GROUP = 100
# bytes of an exported network's weights; also of the constants (buffers) that its architecture comes to
WEIGHTS_BYTES = 4096 * MB
# numbers of one input of an exported network: an image of 4096 x 4096 pixels in colour
INPUT_NUMBERS = 3 * 4096 * 4096
# unpacked size of a pack: the larger of PACK_TIMES its own size and PACK_LEAST; weights hardly shrink
PACK_TIMES, PACK_LEAST = 4, 64 * MB
# bytes of a pack's first member
MANIFEST_BYTES = 16 * MB
