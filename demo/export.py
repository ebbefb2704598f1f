"""Writes trained states as checkpoints in the official layout: python3 -m demo.export STATE_DIR OUT_DIR

STATE_DIR is what train.py wrote. OUT_DIR gets trunk/, and dspark/ and mtp/ when their states are there; each is a
directory that `lockstep convert` reads. Routed experts become packed FP4 with E8M0 scales, the values that training
rounded them to; other matrices bfloat16, small and sensitive tensors float32.
"""
import json
import pathlib
import re
import shutil
import sys

import torch

from demo.drafters import BLOCK, CAPTURED, EXPERTS, MARKOV_RANK, MASK_TOKEN, STAGES
from demo.rounding import fp4_scale_and_code
from demo.tensorfile import load_state, save, split

HERE = pathlib.Path(__file__).parent
FLOAT32_ENDINGS = ("_fn", "_base", "_scale", "attn_sink", ".ape", "gate.bias", "gate.weight")
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def pack_fp4(matrix):
    """A matrix [out, in] to (int8 [out, in/2], scale bytes [out, in/32]); the even value is in the low nibble."""
    scale, values = fp4_scale_and_code(matrix.bfloat16())
    size = (values.abs().reshape(matrix.shape)[..., None] == E2M1).int().argmax(-1)
    code = size + 8 * (torch.signbit(values).reshape(matrix.shape).int())
    packed = (code[:, 0::2] | (code[:, 1::2] << 4)).to(torch.uint8).view(torch.int8)
    exponent = torch.frexp(scale[..., 0]).exponent - 1  # frexp writes 2^k as 0.5 * 2^(k+1)
    return packed, (exponent + 127).to(torch.uint8)


def block_tensors(state, ours, theirs):
    """The tensors of one block, from our prefix to the official one."""
    tensors = {}
    for name, tensor in state.items():
        if not name.startswith(ours):
            continue
        rest = name[len(ours) :]
        stack = re.fullmatch(r"ffn\.(w[123])", rest)
        if stack:
            for expert, weights in enumerate(tensor[:-1]):
                packed, scale = pack_fp4(weights)
                tensors[f"{theirs}ffn.experts.{expert}.{stack[1]}.weight"] = packed
                tensors[f"{theirs}ffn.experts.{expert}.{stack[1]}.scale"] = scale
            tensors[f"{theirs}ffn.shared_experts.{stack[1]}.weight"] = tensor[-1]
        elif rest.startswith("hc_"):
            tensors[theirs + rest.replace(".", "_")] = tensor
        elif rest in ("ffn.bias", "ffn.tid2eid"):
            tensors[theirs + rest.replace("ffn.", "ffn.gate.")] = tensor
        elif rest.endswith((".ape", "attn_sink")):
            tensors[theirs + rest] = tensor
        else:
            tensors[f"{theirs}{rest}.weight"] = tensor
    return tensors


def head_tensors(state, prefix):
    return {f"{prefix}hc_head_{field}": state[f"hc_head.{field}"] for field in ("fn", "base", "scale")}


def trunk_tensors(state, layers):
    tensors = {f"{name}.weight": state[name] for name in ("embed", "norm", "head")}
    tensors.update(head_tensors(state, ""))
    for layer in range(layers):
        tensors.update(block_tensors(state, f"layers.{layer}.", f"layers.{layer}."))
    return tensors


def dspark_tensors(state):
    last = f"mtp.{STAGES - 1}."
    tensors = {f"mtp.0.{name}.weight": state[name] for name in ("main_proj", "main_norm")}
    for stage in range(STAGES):
        tensors.update(block_tensors(state, f"stages.{stage}.", f"mtp.{stage}."))
    tensors.update(head_tensors(state, last))
    tensors[last + "norm.weight"] = state["norm"]
    for name in ("markov_w1", "markov_w2"):
        tensors[f"{last}markov_head.{name}.weight"] = state[name]
    tensors[last + "confidence_head.proj.weight"] = state["confidence"][None]
    return tensors


def mtp_tensors(state):
    tensors = {f"mtp.0.{name}.weight": state[name] for name in ("e_proj", "h_proj", "enorm", "hnorm", "norm")}
    tensors.update(block_tensors(state, "block.", "mtp.0."))
    tensors.update(head_tensors(state, "mtp.0."))
    return tensors


def write_checkpoint(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.dim() >= 2 and not name.endswith(FLOAT32_ENDINGS):
            tensors[name] = tensor.bfloat16()
    parts = split(tensors)
    names = [f"model-{index + 1:05}-of-{len(parts):05}.safetensors" for index in range(len(parts))]
    for name, part in zip(names, parts):
        save(folder / name, part, {"format": "pt"})
    index = {
        "metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())},
        "weight_map": {tensor: name for name, part in zip(names, parts) for tensor in part},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copy(HERE / "tokenizer.json", folder / "tokenizer.json")
    print(f"{folder}: {len(tensors)} tensors, {index['metadata']['total_size']} bytes")


def main(states, out):
    config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))
    layers = config["num_hidden_layers"]
    write_checkpoint(out / "trunk", trunk_tensors(load_state(states, "trunk"), layers), config)
    drafter = {**config, "n_routed_experts": EXPERTS}
    if (states / "dspark-0.safetensors").exists():
        mask = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == MASK_TOKEN)
        values = {
            **drafter,
            "_name_or_path": "Lockstep demo DSpark",
            "compress_ratios": config["compress_ratios"] + [0] * STAGES,
            "dspark_block_size": BLOCK,
            "dspark_target_layer_ids": [layers + layer for layer in CAPTURED],
            "dspark_noise_token_id": mask,
            "dspark_markov_rank": MARKOV_RANK,
        }
        write_checkpoint(out / "dspark", dspark_tensors(load_state(states, "dspark")), values)
    if (states / "mtp-0.safetensors").exists():
        ratios = config["compress_ratios"] + [0]
        values = {**drafter, "_name_or_path": "Lockstep demo MTP", "compress_ratios": ratios}
        write_checkpoint(out / "mtp", mtp_tensors(load_state(states, "mtp")), values)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
