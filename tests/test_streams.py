"""Standard output and error that are not what a command expects."""

import io
import os
import sys

import pytest

from graphormer_sepnorm.streams import usable


def _without_reader() -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_nobody_reads_ends_no_training(monkeypatch, name):
    with _without_reader() as stream:
        monkeypatch.setattr(sys, name, stream)
        with usable(True):
            for _ in range(2):
                print("to nobody", file=getattr(sys, name), flush=True)
            print("held back", file=getattr(sys, name))
        assert getattr(sys, name) is stream


def test_a_prediction_ends_with_its_reader_and_not_with_that_of_its_errors(monkeypatch):
    with _without_reader() as out, _without_reader() as error:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", error)
        with usable(False):
            print("to nobody", file=sys.stderr, flush=True)
            with pytest.raises(BrokenPipeError):
                print("to nobody", flush=True)


def test_a_closed_stream_takes_what_is_printed(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with usable(False):
        print("nowhere", flush=True)
        print("nowhere", file=sys.stderr, flush=True)
        sys.stdout.buffer.write(b"nowhere")


def test_what_the_encoding_lacks_is_escaped(monkeypatch):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with usable(False):
        print(os.fsdecode(b"a\xff"), "\u00e9", flush=True)
    assert raw.getvalue() == b"a\\udcff \\xe9\n"
    assert stream.errors == "strict"
