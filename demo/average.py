"""The mean of two states of the same training, tensor by tensor: python3 -m demo.average A B SHARE OUT

OUT gets SHARE of A's trunk and the rest of B's, and B's drafters. A start for a further run, not more: on held-out tool
calls the mean was as good as the later state, no better.
"""
import pathlib
import shutil
import sys

from demo.tensorfile import load_state, save_state


def main(first, second, share, out):
    share, folder = float(share), pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    a, b = load_state(first, "trunk"), load_state(second, "trunk")
    mean = {name: (share * a[name].float() + (1 - share) * tensor.float()).to(tensor.dtype)
            if tensor.is_floating_point() else tensor for name, tensor in b.items()}
    save_state(folder, "trunk", mean)
    for part in pathlib.Path(second).glob("*.safetensors"):
        if not part.name.startswith("trunk"):
            shutil.copy(part, folder)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: python3 -m demo.average A B SHARE OUT")
    main(*sys.argv[1:])
