"""Reading and writing safetensors files, and model states in parts of bounded size."""
import json
import os
import pathlib
import struct

import torch

PART_BYTES = 15 << 20
_DTYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I8": torch.int8,
    "F8_E8M0": torch.uint8,  # bytes; a scale 2^(byte - 127)
}
_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32", torch.int8: "I8"}
_NAMES[torch.uint8] = "F8_E8M0"  # the only bytes that we write


def save(path, tensors, metadata=None):
    """Writes a dictionary of CPU tensors; the file appears whole or not at all."""
    header, blobs, offset = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in tensors.items():
        blob = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.part"
    with open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            file.write(blob)
    os.replace(temporary, path)


def load(path):
    """The tensors of one file."""
    data = bytearray(pathlib.Path(path).read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(bytes(data[8 : 8 + size]))
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, (begin, end) = _DTYPES[entry["dtype"]], entry["data_offsets"]
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=dtype)
            continue
        raw = torch.frombuffer(data, dtype=torch.uint8, count=end - begin, offset=8 + size + begin).clone()
        tensors[name] = raw.view(dtype).reshape(entry["shape"])
    return tensors


def split(tensors, limit=PART_BYTES):
    """The dictionary cut into parts of at most `limit` bytes of data, in order."""
    parts, size = [{}], 0
    for name, tensor in tensors.items():
        count = tensor.numel() * tensor.element_size()
        if parts[-1] and size + count > limit:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += count
    return parts


def _keeps_float32(name, tensor):
    leaf = name.split(".")[-1]
    return tensor.dim() < 2 or leaf in ("fn", "ape", "gate")


def save_state(folder, stem, state):
    """A module's state_dict as STEM-0.safetensors, STEM-1...: matrices in bfloat16, as the forward pass uses them,
    small and sensitive tensors in float32."""
    tensors = {}
    for name, tensor in state.items():
        if tensor.is_floating_point() and not _keeps_float32(name, tensor):
            tensor = tensor.bfloat16()
        tensors[name] = tensor.cpu()
    for index, part in enumerate(split(tensors)):
        save(pathlib.Path(folder) / f"{stem}-{index}.safetensors", part)


def load_state(folder, stem):
    """The state that save_state wrote, floats as float32."""
    paths = sorted(pathlib.Path(folder).glob(f"{stem}-[0-9]*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"{folder}: no {stem}-0.safetensors")
    state = {}
    for path in paths:
        state.update(load(path))
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
