"""Computes what the engine does of a clip, for make.py: 16-bit samples at 16 kHz from standard input become float32 [128, frames]. The argument is
audio_type of llm_config.json. Runs where MNN is installed."""
import os
import sys

import numpy as np

out = os.dup(1)
os.dup2(2, 1)  # the engine prints to standard output
import MNN.audio
import MNN.expr as expr

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "runtime", "sound", "testdata"))
from conformer import conformer, usm

wave = np.frombuffer(sys.stdin.buffer.read(), "<i2").astype(np.float32) / np.float32(32768)
if sys.argv[1] == "conformer":
    features = conformer(wave)
elif sys.argv[1] == "usm":
    features = usm(wave)
else:
    features = np.array(MNN.audio.whisper_fbank(expr.const(wave.tolist(), [wave.size], expr.NHWC, expr.float), 16000, 128, 400, 160, 0).read(), dtype="<f4")
os.write(out, np.ascontiguousarray(features).tobytes())
