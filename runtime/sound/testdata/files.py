"""Makes the sounds of files/ with Python and flac 1.4: python files.py DIR. All but rising.wav hold the same tone of 50 ms, with another one in the second channel."""
import math
import os
import struct
import subprocess
import sys

out = sys.argv[1]


def samples(rate, channels):
    count = rate // 20
    return [0.7 * math.sin(2 * math.pi * (440 + 300 * c) * i / rate) * (1 - i / count) for i in range(count) for c in range(channels)]


def wav(name, rate=16000, channels=1, encoding=1, bits=16, before=b"", extended=False, data=None):
    pack = {(1, 8): ("<B", lambda v: int(128 + 127 * v)), (1, 16): ("<h", lambda v: int(32767 * v)), (1, 32): ("<i", lambda v: int((2**31 - 1) * v)),
            (3, 32): ("<f", float)}
    if data is None and bits == 24:
        data = b"".join(struct.pack("<i", int((2**23 - 1) * v))[:3] for v in samples(rate, channels))
    elif data is None:
        form, convert = pack[encoding, bits]
        data = b"".join(struct.pack(form, convert(v)) for v in samples(rate, channels))
    step = channels * bits // 8
    head = struct.pack("<HHIIHH", 0xFFFE if extended else encoding, channels, rate, rate * step, step, bits)
    if extended:
        head += struct.pack("<HHIH", 22, bits, 1, encoding) + b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
    body = b"WAVE" + before + b"fmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(data)) + data
    with open(os.path.join(out, name), "wb") as f:
        f.write(b"RIFF" + struct.pack("<I", len(body)) + body)


wav("16000.wav")
wav("8000.wav", rate=8000)
wav("44100.wav", rate=44100)
wav("48000.wav", rate=48000)
wav("stereo.wav", channels=2)
wav("8bits.wav", bits=8)
wav("32bits.wav", bits=32)
wav("float.wav", encoding=3, bits=32)
wav("junk.wav", before=b"JUNK\x04\0\0\0abcd")
wav("24bits.wav", bits=24, extended=True)  # not for the engine, as all below
wav("listed.wav", before=b"LIST\x03\0\0\0abc\0")
wav("empty.wav", data=b"")
wav("law.wav", encoding=7, bits=8, data=b"\xff" * 800)
for name in ("16000.flac", "stereo.flac"):
    source = os.path.join(out, name.replace("flac", "wav"))
    subprocess.run(["flac", "--silent", "--no-padding", "--force", "-o", os.path.join(out, name), source], check=True)
rising = [int(20000 * math.sin(i * (0.1 + i / 9000))) for i in range(3000)]  # another sound, and longer
wav("rising.wav", data=struct.pack("<3000h", *rising))
