# Writes the parquet files of this directory. Made with pyarrow 26.0.1.
import pyarrow as pa
import pyarrow.parquet as pq

words = "the river kept its course and the town grew along both banks until winter came".split()
texts = [" ".join(words[(i + k) % len(words)] for k in range(3 + i % 17)) + f" {i}.\nÜber 河 {i}" for i in range(60)]
texts[7] = texts[8] = ""
conversations = [
    [{"role": "system", "content": "Answer briefly."}] * (i % 3 == 0)
    + [{"role": "user", "content": texts[i] + "?"}, {"role": "assistant", "content": texts[-i - 1]}] * (1 + i % 2)
    for i in range(20)
]
message = pa.struct([("role", pa.string()), ("content", pa.string())])

table = pa.table({"id": pa.array(range(60), pa.int64()), "text": pa.array(texts, pa.string())})
pq.write_table(table, "snappy.parquet", compression="snappy", row_group_size=25, data_page_size=256)
table = pa.table({"messages": pa.array(conversations, pa.list_(message)), "kind": ["a", "b"] * 10})
pq.write_table(table, "chat-zstd.parquet", compression="zstd", row_group_size=12)
share = [[{"from": {"user": "human", "assistant": "gpt"}.get(m["role"], m["role"]), "value": m["content"]} for m in c] for c in conversations]
turn = pa.struct([("from", pa.string()), ("value", pa.string())])
table = pa.table({"conversations": pa.array(share, pa.list_(turn)), "text": pa.array(texts[:20], pa.large_string())})
pq.write_table(table, "share-gzip-v2.parquet", compression="gzip", data_page_version="2.0", use_dictionary=False,
               column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY", "conversations.list.element.value": "DELTA_LENGTH_BYTE_ARRAY"})

# Bytes as data sets have pictures: a struct of bytes and a path, and bytes alone.
files = [bytes((i * 7 + k * k) % 256 for k in range(40 + i)) for i in range(11)]
struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
table = pa.table({"image": pa.array([{"bytes": b, "path": f"{i}.bin"} for i, b in enumerate(files)], struct),
                  "raw": pa.array(files, pa.binary()), "many": pa.array([[b] for b in files], pa.list_(pa.binary())),
                  "away": pa.array([{"bytes": None, "path": f"{i}.bin"} for i in range(11)], struct)})
pq.write_table(table, "files.parquet", compression="snappy", row_group_size=4)
