"""Holds the training forward pass to golden logits: python3 -m demo.verify GOLDEN_DIR

GOLDEN_DIR holds a small random model `nano-a.gguf`, `nano-a.golden.{json,bin}` (plain mathematics) and
`nano-a.official.golden.{json,bin}` (with the official roundings). Prints the largest difference of every sequence;
exits with 1 when one is larger than float32 noise or an argmax differs.
"""
import json
import pathlib
import struct
import sys

import numpy as np
import torch

from demo.model import Config, Mode, Model, Tables, Trace

LIMITS = {"nano-a": 1e-3, "nano-a.official": 1e-3}  # float32 noise at 1,500 tokens is about half of it


def read_gguf(path):
    """(metadata, tensors) of a GGUF file whose tensors are F32, F16 or I32."""
    data = path.read_bytes()
    scalars = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    at = 0

    def take(fmt):
        nonlocal at
        values = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return values if len(values) > 1 else values[0]

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size : at].decode("utf-8")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            item, count = take("IQ")
            return [value(item) for _ in range(count)]
        return take(scalars[kind])

    magic, _, tensor_count, key_count = take("IIQQ")
    if magic != 0x46554747:
        raise ValueError(f"{path}: not GGUF")
    metadata = {}
    for _ in range(key_count):
        key = text()
        metadata[key] = value(take("I"))
    infos = []
    for _ in range(tensor_count):
        name, rank = text(), take("I")
        shape = [take("Q") for _ in range(rank)][::-1]
        infos.append((name, shape, *take("IQ")))
    base = at + -at % metadata.get("general.alignment", 32)
    kinds = {0: np.float32, 1: np.float16, 26: np.int32}
    tensors = {
        name: np.frombuffer(data, kinds[kind], int(np.prod(shape)), base + offset).reshape(shape)
        for name, shape, kind, offset in infos
    }
    return metadata, tensors


BLOCK_NAMES = {
    "attn_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "attn.wq_a": "attn_q_a",
    "attn.q_norm": "attn_q_a_norm",
    "attn.wq_b": "attn_q_b",
    "attn.wkv": "attn_kv",
    "attn.kv_norm": "attn_kv_a_norm",
    "attn.attn_sink": "attn_sinks",
    "attn.wo_a": "attn_output_a",
    "attn.wo_b": "attn_output_b",
    "ffn.gate": "ffn_gate_inp",
    **{f"hc_{part}.{field}": f"hc_{part}_{field}" for part in ("attn", "ffn") for field in ("fn", "base", "scale")},
}
COMPRESSOR_NAMES = {"wkv": "kv", "wgate": "gate", "ape": "ape", "norm": "norm"}


def state_from_gguf(tensors, config):
    def tensor(name):
        return torch.from_numpy(tensors[name].copy())

    state = {
        "embed": tensor("token_embd.weight"),
        "norm": tensor("output_norm.weight"),
        "head": tensor("output.weight"),
        **{f"hc_head.{field}": tensor(f"output_hc_{field}.weight") for field in ("fn", "base", "scale")},
    }
    for layer, ratio in enumerate(config.compress_ratios[: config.num_hidden_layers]):
        ours, theirs = f"layers.{layer}.", f"blk.{layer}."
        for key, name in BLOCK_NAMES.items():
            state[ours + key] = tensor(f"{theirs}{name}.weight")
        for key, name in (("w1", "gate"), ("w3", "up"), ("w2", "down")):
            routed, shared = tensor(f"{theirs}ffn_{name}_exps.weight"), tensor(f"{theirs}ffn_{name}_shexp.weight")
            state[f"{ours}ffn.{key}"] = torch.cat([routed, shared[None]], 0)
        if layer < config.num_hash_layers:
            state[ours + "ffn.tid2eid"] = tensor(theirs + "ffn_gate_tid2eid.weight").long()
        else:
            state[ours + "ffn.bias"] = tensor(theirs + "exp_probs_b.bias")
        for key, name in COMPRESSOR_NAMES.items():
            if ratio:
                state[f"{ours}attn.compressor.{key}"] = tensor(f"{theirs}attn_compressor_{name}.weight")
            if ratio == 4:
                state[f"{ours}attn.indexer.compressor.{key}"] = tensor(f"{theirs}indexer_compressor_{name}.weight")
        if ratio == 4:
            state[ours + "attn.indexer.wq_b"] = tensor(theirs + "indexer.attn_q_b.weight")
            state[ours + "attn.indexer.weights_proj"] = tensor(theirs + "indexer.proj.weight")
    return state


NANO = Config(
    vocab_size=512,
    hidden_size=128,
    num_hidden_layers=6,
    num_attention_heads=4,
    head_dim=128,
    qk_rope_head_dim=32,
    q_lora_rank=64,
    o_groups=2,
    o_lora_rank=64,
    index_n_heads=16,
    index_head_dim=64,
    index_topk=8,
    n_routed_experts=16,
    num_experts_per_tok=6,
    moe_intermediate_size=32,
    num_hash_layers=3,
    compress_ratios=(0, 0, 4, 128, 4, 128),
    swiglu_limit=2.5,
    rope_original=1024,
)


def main(folder):
    torch.set_float32_matmul_precision("highest")
    model = Model(NANO)
    model.load_state_dict(state_from_gguf(read_gguf(folder / "nano-a.gguf")[1], NANO))
    failed = False
    for name, limit in LIMITS.items():
        index = json.loads((folder / f"{name}.golden.json").read_text())
        blob = (folder / f"{name}.golden.bin").read_bytes()
        kinds = {"f32": np.float32, "i32": np.int32}
        golden = {
            t["name"]: np.frombuffer(blob, kinds[t["dtype"]], t["nbytes"] // 4, t["offset"]).reshape(t["shape"])
            for t in index["tensors"]
        }
        for key in [k for k in golden if k.endswith(".tokens")]:
            sequence = key[: -len(".tokens")]
            tokens, want = golden[key], golden[sequence + ".logits"]
            length = -(-len(tokens) // 128) * 128
            ids = torch.zeros(1, length, dtype=torch.long)
            ids[0, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
            with torch.no_grad():
                tables = Tables(NANO, 1, length, "cpu")
                streams = model.streams(ids, tables, Mode(round_rows=name.endswith("official")), Trace())
                got = model.logits(streams)[golden[sequence + ".positions"].tolist()].numpy()
            worst = np.abs(got - want).max()
            same = (got.argmax(-1) == want.argmax(-1)).mean()
            failed |= worst > limit or same < 1
            print(f"{name} {sequence}: {len(tokens)} tokens, max difference {worst:.1e}, argmax {same:.3f}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
