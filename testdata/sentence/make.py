"""Makes the checkpoints of this directory, embedding models and rerankers, with what transformers computes of some texts.

    python make.py [NAME ...]           makes them again; what it would make the same is left as it is
    python make.py --check [NAME ...]   makes them elsewhere, and fails where they differ

Weights are random, as in pipeline/arch/testdata. A tokenizer is trained once and kept. NAME/golden.json has the ids of texts and their vectors in float32, or of a reranker
the scores of documents for a query. Pooling and normalisation are those of sentence-transformers, written down below. Needs what the
Makefile calls TRANSFORMERS and TORCH; `make fixtures` installs it and runs this.
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import zlib

import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "pipeline" / "arch" / "testdata"))
from make import content, randomise, rope  # noqa: E402

sys.path.insert(0, str(HERE))
import published  # noqa: E402

TEXTS = [
    "Look at this: what is different?", "The cat sat.", "a", "A rather longer sentence, with commas, (brackets) and an end!", "Ünïcödé café 中文 text — 123",
    "  spaces   and\ttabs\nand lines  ", " ".join(["among the vicissitudes incident to life"] * 5),
]
QUERY, DOCUMENTS = "What sat on the mat?", ["The cat sat on the mat.", "Great was the joy of the people.", "a", " ".join(["of the people"] * 24), "Ünïcödé 中文"]
INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"

# What the engine asks a reranker that is a language model.
BEFORE = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the '
          'answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: ' + INSTRUCT + "\n<Query>: " + QUERY + "\n<Document>: ")
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

BERT = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=256)
QWEN3 = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             max_position_embeddings=512, rms_norm_eps=1e-6, **rope(rope_theta=1e6))
MODERN = dict(hidden_size=48, intermediate_size=72, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=256, local_attention=16)
GEMMA = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, head_dim=16,
             max_position_embeddings=256, query_pre_attn_scalar=16, sliding_window=16, use_bidirectional_attention=True)
FULL, SLIDING = "full_attention", "sliding_attention"
NOMIC = dict(
    model_type="nomic_bert", architectures=["NomicBertModel"], auto_map={
        "AutoConfig": "configuration_hf_nomic_bert.NomicBertConfig", "AutoModel": "modeling_hf_nomic_bert.NomicBertModel",
        "AutoModelForMaskedLM": "modeling_hf_nomic_bert.NomicBertForPreTraining"},
    activation_function="swiglu", attn_pdrop=0.0, causal=False, dense_seq_output=True, embd_pdrop=0.0, fused_bias_fc=True, fused_dropout_add_ln=True,
    initializer_range=0.02, layer_norm_epsilon=1e-12, max_trained_positions=256, mlp_fc1_bias=False, mlp_fc2_bias=False, n_embd=48, n_head=4, n_inner=256,
    n_layer=3, n_positions=512, pad_vocab_size_multiple=64, parallel_block=False, parallel_block_tied_norm=False, prenorm=False, qkv_proj_bias=False,
    reorder_and_upcast_attn=False, resid_pdrop=0.0, rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None,
    rotary_scaling_factor=None, scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, summary_activation=None, summary_first_dropout=0.0,
    summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True, type_vocab_size=2, use_cache=True, use_flash_attn=True, use_rms_norm=False,
    use_xentropy=True)
JINA = dict(
    model_type="bert", architectures=["JinaBertModel"], auto_map={
        "AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig",
        "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel",
        "AutoModelForMaskedLM": "jinaai/jina-bert-implementation--modeling_bert.JinaBertForMaskedLM"},
    attention_probs_dropout_prob=0.0, attn_implementation=None, classifier_dropout=None, emb_pooler="mean", feed_forward_type="geglu",
    gradient_checkpointing=False, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=48, initializer_range=0.02, intermediate_size=96,
    layer_norm_eps=1e-12, max_position_embeddings=256, model_max_length=256, num_attention_heads=4, num_hidden_layers=3,
    position_embedding_type="alibi", type_vocab_size=2, use_cache=True)
GTE = dict(
    model_type="new", architectures=["NewModel"], auto_map={
        "AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig", "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel",
        "AutoModelForMaskedLM": "Alibaba-NLP/new-impl--modeling.NewForMaskedLM"},
    attention_probs_dropout_prob=0.0, classifier_dropout=None, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=48, initializer_range=0.02,
    intermediate_size=96, layer_norm_eps=1e-12, layer_norm_type="layer_norm", logn_attention_clip1=False, logn_attention_scale=False,
    max_position_embeddings=256, num_attention_heads=4, num_hidden_layers=3, pack_qkv=True, position_embedding_type="rope",
    rope_scaling={"factor": 2.0, "type": "ntk"}, rope_theta=500000, type_vocab_size=0, unpad_inputs=False, use_memory_efficient_attention=False)
SNOWFLAKE = dict(
    GTE, model_type="gte", architectures=["GteModel"], auto_map={
        "AutoConfig": "configuration_hf_alibaba_nlp_gte.GteConfig", "AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"},
    layer_norm_eps=1e-12, rope_scaling=None, rope_theta=160000, type_vocab_size=1, matryoshka_dimensions=[24], unpad_inputs="true",
    use_memory_efficient_attention="true")

# By name: the class of the config, that of the model, options, the tokenizer, and the pooling. A class of published.py has no class of
# a config: its options are the file.
CHECKPOINTS = {
    "bert-cls": ("BertConfig", "BertModel", BERT, "wordpiece", "cls normalize"),
    "bert-mean": ("BertConfig", "BertModel", dict(
        BERT, hidden_size=60, num_attention_heads=6, intermediate_size=84, num_hidden_layers=2, layer_norm_eps=1e-5, max_position_embeddings=128,
        hidden_act="gelu_new"), "wordpiece", "mean"),
    "bert-masked": ("BertConfig", "BertForMaskedLM", dict(
        BERT, hidden_size=32, num_attention_heads=2, num_hidden_layers=1, type_vocab_size=3, hidden_act="relu"), "wordpiece", "mean normalize"),
    "roberta-mean": ("RobertaConfig", "RobertaModel", dict(BERT, hidden_size=40, type_vocab_size=1, num_attention_heads=2), "bytes", "mean normalize"),
    "xlm-roberta-cls": ("XLMRobertaConfig", "XLMRobertaModel", dict(BERT, type_vocab_size=1, layer_norm_eps=1e-5), "unigram", "cls normalize"),
    "xlm-roberta-mean": ("XLMRobertaConfig", "XLMRobertaModel", dict(
        BERT, hidden_size=36, num_attention_heads=3, num_hidden_layers=2, type_vocab_size=1, max_position_embeddings=130), "unigram", "mean normalize"),
    "xlm-roberta-pairs": ("XLMRobertaConfig", "XLMRobertaForSequenceClassification", dict(BERT, type_vocab_size=1, num_labels=1), "unigram", "pairs"),
    "xlm-roberta-pairs-wide": ("XLMRobertaConfig", "XLMRobertaForSequenceClassification", dict(
        BERT, hidden_size=56, num_attention_heads=7, intermediate_size=64, num_hidden_layers=2, type_vocab_size=1, num_labels=1, layer_norm_eps=1e-5,
        max_position_embeddings=386), "unigram", "pairs"),
    "embeddinggemma": ("Gemma3TextConfig", "Gemma3TextModel", dict(GEMMA, sliding_window_pattern=4), "gemma", "mean dense:96 dense:48 normalize"),
    "embeddinggemma-odd": ("Gemma3TextConfig", "Gemma3TextModel", dict(
        GEMMA, hidden_size=48, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, head_dim=24, query_pre_attn_scalar=40, sliding_window=41,
        layer_types=[SLIDING, FULL, SLIDING], rope_parameters={
            FULL: {"rope_type": "default", "rope_theta": 50000.0}, SLIDING: {"rope_type": "default", "rope_theta": 700.0}}),
        "gemma", "mean dense:40:tanh normalize"),
    "embeddinggemma-short": ("Gemma3TextConfig", "Gemma3ForCausalLM", dict(
        GEMMA, num_hidden_layers=2, num_key_value_heads=2, sliding_window=512, layer_types=[SLIDING, FULL]), "gemma", "cls"),
    "gemma3-causal": ("Gemma3TextConfig", "Gemma3TextModel", dict(
        GEMMA, num_hidden_layers=2, layer_types=[SLIDING, FULL], use_bidirectional_attention=False), "gemma", "lasttoken normalize"),
    "modernbert-cls": ("ModernBertConfig", "ModernBertModel", dict(MODERN, global_attn_every_n_layers=3), "pieces", "cls"),
    "modernbert-mean": ("ModernBertConfig", "ModernBertForMaskedLM", dict(
        MODERN, hidden_size=64, num_attention_heads=2, num_hidden_layers=5, local_attention=25, layer_types=[SLIDING, SLIDING, FULL, SLIDING, FULL],
        attention_bias=True, mlp_bias=True, norm_bias=True, norm_eps=1e-6), "pieces", "mean normalize"),
    "modernbert-wide": ("ModernBertConfig", "ModernBertModel", dict(
        MODERN, hidden_size=60, num_attention_heads=6, num_hidden_layers=3, local_attention=128, global_attn_every_n_layers=2,
        hidden_activation="silu", rope_parameters={
            FULL: {"rope_type": "default", "rope_theta": 80000.0}, SLIDING: {"rope_type": "default", "rope_theta": 500.0}}), "pieces", "cls normalize"),
    "nomic-mean": (None, published.Nomic, NOMIC, "wordpiece", "mean"),
    "nomic-scaled": (None, published.Nomic, dict(
        NOMIC, n_embd=60, n_head=6, n_inner=200, n_layer=2, rotary_emb_fraction=0.6, rotary_scaling_factor=2, max_trained_positions=200, rotary_emb_base=10000,
        activation_function="geglu", mlp_fc1_bias=True, mlp_fc2_bias=True, type_vocab_size=0, layer_norm_epsilon=1e-5), "wordpiece", "mean normalize"),
    "nomic-cls": (None, published.Nomic, dict(
        NOMIC, n_embd=32, n_head=2, n_layer=1, n_inner=300, qkv_proj_bias=True, mlp_fc2_bias=True, type_vocab_size=1, pad_vocab_size_multiple=1),
        "wordpiece", "cls normalize"),
    "nomic-saved": ("NomicBertConfig", "NomicBertModel", dict(
        hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=256, **rope(rope_theta=700.0)),
        "wordpiece", "mean normalize"),
    "jina3-mean": ("JinaEmbeddingsV3Config", "JinaEmbeddingsV3Model", dict(BERT, max_position_embeddings=256), "unigram", "mean normalize"),
    "jina3-cls": ("JinaEmbeddingsV3Config", "JinaEmbeddingsV3Model", dict(
        BERT, hidden_size=60, num_attention_heads=6, intermediate_size=84, num_hidden_layers=2, type_vocab_size=2, layer_norm_eps=1e-12,
        hidden_act="gelu_new", **rope(rope_theta=500.0)), "unigram", "cls"),
    "jina3-masked": ("JinaEmbeddingsV3Config", "JinaEmbeddingsV3ForMaskedLM", dict(
        BERT, hidden_size=32, num_attention_heads=2, num_hidden_layers=1, **rope(rope_type="linear", rope_theta=1e4, factor=2.0)), "unigram", "mean"),
    "jina-mean": (None, published.Jina, JINA, "wordpiece", "mean"),
    "jina-heads": (None, published.Jina, dict(
        JINA, hidden_size=60, num_attention_heads=6, intermediate_size=64, num_hidden_layers=2, feed_forward_type="reglu", type_vocab_size=1,
        layer_norm_eps=1e-5), "wordpiece", "mean normalize"),
    "jina-masked": (None, published.Jina, dict(
        JINA, architectures=["JinaBertForMaskedLM"], hidden_size=32, num_attention_heads=2, num_hidden_layers=1), "bytes", "cls normalize"),
    "new-cls": (None, published.Gte, GTE, "wordpiece", "cls"),
    "new-tokens": (None, published.Gte, dict(
        GTE, architectures=["NewModel", "NewForTokenClassification"], hidden_size=60, num_attention_heads=6, num_hidden_layers=2, intermediate_size=72,
        rope_scaling={"factor": 8.0, "type": "ntk"}, rope_theta=20000, type_vocab_size=1), "unigram", "cls normalize"),
    "new-apart": (None, published.Gte, dict(
        GTE, hidden_size=32, num_attention_heads=2, num_hidden_layers=2, pack_qkv=False, rope_scaling=None, rope_theta=1e4, type_vocab_size=2,
        hidden_act="silu", layer_norm_eps=1e-6), "wordpiece", "mean normalize"),
    "gte-saved": ("GteConfig", "GteModel", dict(
        BERT, hidden_size=36, num_attention_heads=3, num_hidden_layers=2, type_vocab_size=0, **rope(rope_type="linear", rope_theta=160000.0, factor=1.07)),
        "wordpiece", "cls normalize"),
    "gte-masked": ("GteConfig", "GteForMaskedLM", dict(BERT, intermediate_size=80, num_hidden_layers=1, type_vocab_size=1, hidden_act="silu"), "unigram", "mean"),
    "gte-snowflake": (None, published.Gte, SNOWFLAKE, "unigram", "cls normalize"),
    "qwen3-embedding": ("Qwen3Config", "Qwen3Model", dict(QWEN3, tie_word_embeddings=True), "chat", "lasttoken normalize"),
    "qwen3-embedding-mean": ("Qwen3Config", "Qwen3ForCausalLM", dict(
        QWEN3, hidden_size=40, num_attention_heads=2, num_key_value_heads=2, head_dim=32, num_hidden_layers=2, tie_word_embeddings=False, attention_bias=True),
        "chat", "mean"),
    "qwen3-embedding-window": ("Qwen3Config", "Qwen3Model", dict(
        QWEN3, hidden_size=48, num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True, use_sliding_window=True, sliding_window=16,
        max_window_layers=1), "chat", "lasttoken normalize"),
    "qwen3-reranker": ("Qwen3Config", "Qwen3ForCausalLM", dict(QWEN3, tie_word_embeddings=True), "chat", "answers"),
    "qwen3-reranker-untied": ("Qwen3Config", "Qwen3ForCausalLM", dict(
        QWEN3, hidden_size=56, num_attention_heads=7, num_key_value_heads=1, num_hidden_layers=2, tie_word_embeddings=False), "chat", "answers"),
}


def lines():
    return (ROOT / "verify" / "text.txt").read_text().splitlines()


def tokenizer(kind):
    """A tokenizer of the kind of a family, made from the evaluation text, and its tokenizer_config.json."""
    if kind == "wordpiece":
        t = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer(lowercase=True)
        t.pre_tokenizer, t.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        t.train_from_iterator(lines(), trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False))
        t.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        return t, dict(tokenizer_class="BertTokenizer", do_lower_case=True, unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]",
                       cls_token="[CLS]", mask_token="[MASK]")
    if kind == "gemma":  # words are joined by U+2581, and characters without a token are bytes
        t = tokenizers.Tokenizer(models.BPE())
        words = [w for line in lines() for w in line.replace(" ", "\n▁").split("\n")]
        t.train_from_iterator(words, trainers.BpeTrainer(vocab_size=400, show_progress=False))
        made = json.loads(t.to_str())["model"]
        special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
        vocab = special + [f"<0x{b:02X}>" for b in range(256)] + sorted(made["vocab"], key=made["vocab"].get)
        t = tokenizers.Tokenizer(models.BPE(
            vocab={x: i for i, x in enumerate(vocab)}, merges=[tuple(m) for m in made["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        t.normalizer, t.pre_tokenizer = normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous")
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        t.add_special_tokens(special)
        t.post_processor = processors.TemplateProcessing(
            single="<bos> $A <eos>", pair="<bos> $A <eos> $B <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)])
        return t, dict(tokenizer_class="GemmaTokenizer", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask>")
    roberta = dict(bos_token="<s>", eos_token="</s>", sep_token="</s>", cls_token="<s>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask>")
    if kind == "unigram":
        t = tokenizers.Tokenizer(models.Unigram())
        t.normalizer = normalizers.NFKC()
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        t.decoder = decoders.Metaspace()
        t.train_from_iterator(lines(), trainers.UnigramTrainer(
            vocab_size=500, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
        t.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
        return t, dict(roberta, tokenizer_class="XLMRobertaTokenizer")
    t = tokenizers.Tokenizer(models.BPE())
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if kind == "pieces":  # of ModernBERT
        t.normalizer, t.pre_tokenizer = normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.train_from_iterator(lines(), trainers.BpeTrainer(
            vocab_size=420, special_tokens=["<|padding|>"], initial_alphabet=alphabet, show_progress=False))
        t.add_tokens([tokenizers.AddedToken(" " * n, normalized=True) for n in (4, 3, 2)])
        t.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", tokenizers.AddedToken("[MASK]", lstrip=True)])
        begin, end = (t.token_to_id(x) for x in ("[CLS]", "[SEP]"))
        t.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", begin), ("[SEP]", end)])
        return t, dict(tokenizer_class="PreTrainedTokenizerFast", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
                       mask_token="[MASK]", clean_up_tokenization_spaces=True)
    if kind == "bytes":
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.train_from_iterator(lines(), trainers.BpeTrainer(
            vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], initial_alphabet=alphabet, show_progress=False))
        t.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
        t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        return t, dict(roberta, tokenizer_class="RobertaTokenizer")
    # Of Qwen3, whose template of a text ends in <|endoftext|>; "yes" and "no" are tokens.
    split = tokenizers.Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(split, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(lines() + ["yes", "no"] * 400, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    assert t.token_to_id("yes") and t.token_to_id("no")
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([tokenizers.AddedToken(x, normalized=False) for x in ("<think>", "</think>")])
    end = t.token_to_id("<|endoftext|>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", end)])])
    chat = ("{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}")
    return t, dict(tokenizer_class="Qwen2Tokenizer", eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=chat)


def layers(mode, width):
    """The layers after the pooling: directory, rows, columns, and whether it has a tanh and a bias."""
    out = []
    for word in mode.split():
        if word.startswith("dense:"):
            rows = int(word.split(":")[1])
            out.append((f"{len(out) + 2}_Dense", rows, width, word.endswith("tanh")))
            width = rows
    return out


def weights(name, rows, columns, biased):
    """The tensors of such a layer of a checkpoint."""
    rng = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    value = {"linear.weight": torch.randn(rows, columns, generator=rng) / columns ** 0.5}
    if biased:
        value["linear.bias"] = torch.randn(rows, generator=rng) * 0.3
    return {k: v.to(torch.bfloat16).float() for k, v in value.items()}


def pool(h, mode, name):
    """The states h [tokens, width] of a text as sentence-transformers pools them."""
    v = h[0] if "cls" in mode else h[-1] if "lasttoken" in mode else h.mean(0)
    for at, rows, columns, tanh in layers(mode, h.shape[-1]):
        w = weights(name + at, rows, columns, tanh)
        v = w["linear.weight"] @ v
        v = torch.tanh(v + w["linear.bias"]) if tanh else v
    return torch.nn.functional.normalize(v, dim=0) if "normalize" in mode else v


def golden(model, t, mode, name):
    """What the model computes of the texts."""
    vector = lambda v: [float(x) for x in v]  # noqa: E731
    if mode == "answers":
        enc = lambda text: t.encode(text, add_special_tokens=False).ids  # noqa: E731
        yes, no = t.token_to_id("yes"), t.token_to_id("no")
        pairs = [enc(BEFORE) + enc(d) + enc(AFTER) for d in DOCUMENTS]
        scores = [torch.softmax(model(input_ids=torch.tensor([ids])).logits[0, -1][[no, yes]], 0)[1].item() for ids in pairs]
        return {"query": QUERY, "instruct": INSTRUCT, "documents": DOCUMENTS, "ids": pairs, "scores": scores}
    if mode == "pairs":
        pairs = [t.encode(QUERY, d).ids for d in DOCUMENTS]
        return {"query": QUERY, "documents": DOCUMENTS, "ids": pairs, "scores": [model(input_ids=torch.tensor([ids])).logits[0, 0].item() for ids in pairs]}
    ids = [t.encode(x).ids for x in TEXTS]
    model = getattr(model, getattr(model, "base_model_prefix", ""), model)  # without a head

    def states(i):
        out = model(torch.tensor([i]))
        return out if torch.is_tensor(out) else out.last_hidden_state
    vectors = [vector(pool(states(i)[0], mode, name)) for i in ids]
    return {"texts": TEXTS, "ids": ids, "vectors": vectors}


def save_published(model, config, width, rng, path):
    """Writes the tensors of a class of published.py, with the head that the last architecture has besides."""
    head = {"JinaBertForMaskedLM": "cls.predictions.transform.dense", "NewForTokenClassification": "classifier"}.get(config["architectures"][-1])
    tensors = {(model.prefix if head else "") + k: v for k, v in model.state_dict().items()}
    if head:
        tensors[head + ".weight"], tensors[head + ".bias"] = torch.randn(1, width, generator=rng), torch.zeros(1)
    save_file({k: v.to(torch.bfloat16).contiguous() for k, v in tensors.items()}, path, metadata={"format": "pt"})


def make(name, dir):
    """Writes all files of a checkpoint into dir."""
    config_class, model_class, options, kind, mode = CHECKPOINTS[name]
    t, settings = tokenizer(kind)
    if (HERE / name / "tokenizer.json").exists():  # training does not give the same bytes twice
        t = tokenizers.Tokenizer.from_file(str(HERE / name / "tokenizer.json"))
    torch.manual_seed(1)
    rng = torch.Generator().manual_seed(2000003 + zlib.crc32(name.encode()))
    vocab = t.get_vocab_size()
    special = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2) if kind in ("unigram", "bytes") else dict(pad_token_id=0)
    if kind == "gemma":
        special = dict(pad_token_id=0, eos_token_id=1, bos_token_id=2)
    if kind == "pieces":
        special = dict(zip(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"),
                           (t.token_to_id(f"[{x}]") for x in ("PAD", "CLS", "SEP", "CLS", "SEP"))))
    if kind == "chat":
        special = dict(pad_token_id=None, bos_token_id=t.token_to_id("<|endoftext|>"), eos_token_id=t.token_to_id("<|im_end|>"))
    if config_class is None:
        written = dict(options, vocab_size=vocab, dtype="bfloat16", **special)
        model = model_class(written).eval()
    else:
        config = getattr(transformers, config_class)(vocab_size=vocab, **special, **options)
        config._attn_implementation = "eager"
        model = getattr(transformers, model_class)(config).float().eval()
    randomise(model, rng, None)
    with torch.no_grad():
        out = golden(model, t, mode, name)
    if config_class is None:
        width = written.get("hidden_size", written.get("n_embd"))
        save_published(model, written, width, rng, dir / "model.safetensors")
    else:
        width = config.hidden_size
        model.to(torch.bfloat16).save_pretrained(dir, max_shard_size="1GB")
        (dir / "generation_config.json").unlink(missing_ok=True)
        written = dict(json.loads((dir / "config.json").read_text()), dtype="bfloat16")
    if kind == "chat":
        written["architectures"] = ["Qwen3ForCausalLM"]  # as those of its authors, also without the head
    if "global_attn_every_n_layers" in options:  # the keys of files on the hub
        del written["layer_types"]
        written.update(layer_norm_eps=written["norm_eps"], position_embedding_type="absolute")
        turns = written.pop("rope_parameters")
        written.update(global_rope_theta=turns[FULL]["rope_theta"], local_rope_theta=turns[SLIDING]["rope_theta"])
    write(dir / "config.json", written)
    write(dir / "golden.json", out)
    t.save(str(dir / "tokenizer.json"))
    write(dir / "tokenizer_config.json", settings)
    if mode not in ("answers", "pairs"):
        dense = layers(mode, width)
        parts = [("Transformer", ""), ("Pooling", "1_Pooling")] + [("Dense", at) for at, *_ in dense]
        parts += [("Normalize", f"{len(parts)}_Normalize")] * ("normalize" in mode)
        for at, rows, columns, tanh in dense:
            (dir / at).mkdir()
            save_file(weights(name + at, rows, columns, tanh), dir / at / "model.safetensors")
            write(dir / at / "config.json", {
                "in_features": columns, "out_features": rows, "bias": tanh,
                "activation_function": "torch.nn.modules.activation.Tanh" if tanh else "torch.nn.modules.linear.Identity"})
        if name == "embeddinggemma":
            write(dir / "config_sentence_transformers.json", {"default_prompt_name": None, "similarity_fn_name": "cosine", "prompts": {
                "query": "task: search result | query: ", "document": "title: none | text: "}})
        write(dir / "modules.json", [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{c}"} for i, (c, path) in enumerate(parts)])
        (dir / "1_Pooling").mkdir()
        modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
        write(dir / "1_Pooling" / "config.json", {
            "word_embedding_dimension": width, **{f"pooling_mode_{m}": m.split("_")[0] in mode and m in (
                "cls_token", "mean_tokens", "lasttoken") for m in modes}, "include_prompt": True})
        write(dir / "sentence_bert_config.json", {"max_seq_length": 120, "do_lower_case": False})
    for file in dir.rglob("*"):
        if file.is_file():
            file.chmod(0o644)


def write(path, value):
    path.write_text(json.dumps(value, indent=None if path.name == "golden.json" else 2, ensure_ascii=False) + "\n")


# Cases of a Go test, as in pipeline/arch/testdata. Nothing here makes them.
CHANGES = pathlib.Path("changes.txt")

# Differences that another CPU may cause.
TOLERANCE = 1e-5


def close(a, b):
    """Whether two goldens agree."""
    x, y = (torch.tensor(sum(g["vectors"], []) if "vectors" in g else g["scores"]) for g in (a, b))
    return a["ids"] == b["ids"] and x.shape == y.shape and (x - y).abs().max().item() <= TOLERANCE


def differences(new, old):
    """What differs between two directories of a checkpoint, as lines."""
    out = []
    for file in sorted({p.relative_to(d) for d in (new, old) if d.is_dir() for p in d.rglob("*") if p.is_file()} - {CHANGES}):
        a, b = new / file, old / file
        if not (a.exists() and b.exists()):
            out.append(f"{file}: {'missing' if a.exists() else 'not made'}")
        elif file.name == "golden.json":
            if not close(json.loads(a.read_text()), json.loads(b.read_text())):
                out.append(f"{file}: differs")
        elif content(a) != content(b):
            out.append(f"{file}: differs")
    return out


def main():
    args = argparse.ArgumentParser()
    args.add_argument("names", nargs="*", metavar="NAME")
    args.add_argument("--check", action="store_true", help="write nothing; fail where a checkpoint differs")
    args = args.parse_args()
    if unknown := [n for n in args.names if n not in CHECKPOINTS]:
        sys.exit(f"no such checkpoint: {', '.join(unknown)} (there are: {', '.join(CHECKPOINTS)})")
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for name in args.names or CHECKPOINTS:
        with tempfile.TemporaryDirectory() as tmp:
            new = pathlib.Path(tmp) / name
            new.mkdir()
            make(name, new)
            found = differences(new, HERE / name)
            if found and not args.check:
                if (HERE / name / CHANGES).exists():
                    shutil.copyfile(HERE / name / CHANGES, new / CHANGES)
                shutil.rmtree(HERE / name, ignore_errors=True)
                shutil.copytree(new, HERE / name)
            print(name, "; ".join(found) or "as it is", sep=": ", flush=True)
            failed += bool(found)
    if failed and args.check:
        sys.exit(f"{failed} checkpoints differ")


if __name__ == "__main__":
    main()
