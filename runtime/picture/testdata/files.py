"""Makes the pictures of files/ with Pillow 13.0.0 and, where Pillow lacks a kind, cjpeg of libjpeg-turbo: python files.py DIR.

All show the same drawing, 23 x 17: a gradient with edges in strong colours, where decoders differ most."""
import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
from PIL import Image

out = sys.argv[1]
y, x = np.mgrid[0:17, 0:23]
drawing = np.stack([x * 255 // 22, y * 255 // 16, (x * y) % 256], axis=2).astype(np.uint8)
drawing[3:9, 4:11] = [250, 20, 30]
drawing[6:14, 9:15] = [10, 230, 40]
drawing[2:15:3, 16:21] = [0, 0, 255]
rgb = Image.fromarray(drawing)
alpha = Image.fromarray((x * 11).astype(np.uint8))
rgba = rgb.copy()
rgba.putalpha(alpha)


def save(name, image=rgb, **options):
    image.save(os.path.join(out, name), **options)


def cjpeg(name, *options):
    ppm = io.BytesIO()
    rgb.save(ppm, "ppm")
    with open(os.path.join(out, name), "wb") as f:
        subprocess.run(["cjpeg", "-quality", "90", *options], input=ppm.getvalue(), stdout=f, check=True)


def png16(name, samples):
    """Writes red, green and blue of 16 bits, which Pillow cannot."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = samples.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    with open(os.path.join(out, name), "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)))
        f.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


save("444.jpg", quality=95, subsampling=0)
save("422.jpg", quality=90, subsampling=1)
save("420.jpg", quality=90, subsampling=2)
save("progressive.jpg", quality=90, subsampling=2, progressive=True)
save("narrow.jpg", rgb.crop((9, 0, 12, 17)), quality=90, subsampling=2)
save("gray.jpg", rgb.convert("L"), quality=90)
save("cmyk.jpg", rgb.convert("CMYK"), quality=95)
cjpeg("440.jpg", "-sample", "1x2")
cjpeg("411.jpg", "-sample", "4x1")
cjpeg("arithmetic.jpg", "-arithmetic")
cjpeg("rgb.jpg", "-rgb")
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(f"turned{orientation}.png", exif=exif)
save("turned8.webp", lossless=True, exif=exif)
exif[0x0112] = 6
save("turned6.jpg", quality=90, exif=exif)
save("rgba.png", rgba)
save("gray.png", rgb.convert("L"))
save("grayalpha.png", rgba.convert("LA"))
save("bits.png", rgb.convert("1"))
palette = rgb.quantize(31)
save("palette.png", palette)
save("clear.png", palette, transparency=bytes(range(0, 248, 8)))
save("gray16.png", Image.fromarray((np.asarray(rgb.convert("L")).astype(np.uint16) * 257 - x * 3).astype(np.uint16)))
png16("rgb16.png", drawing.astype(np.uint16) * 256 + (x * 7 % 256)[:, :, None])
save("still.gif", palette)
save("moving.gif", palette, save_all=True, append_images=[palette.rotate(180), palette.rotate(90)], duration=50)
save("rgb.bmp")
save("palette.bmp", palette)
save("rgba.bmp", rgba)
save("lossy.webp", quality=90)
save("lossyalpha.webp", rgba, quality=90)
save("lossless.webp", lossless=True)
save("moving.webp", save_all=True, append_images=[rgb.rotate(180)], duration=50, lossless=True)
save("drawing.tif")
