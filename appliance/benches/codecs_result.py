"""What `bench codecs` measured: rows, table, plot."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from appliance.benches.base import format_table, machine_line, median
from appliance.benches.bootstrap import mean_interval
from appliance.benches.codec_samples import CodecSample, QuestionSamples
from appliance.benches.plots import Panel, Series

_COLUMNS = (
    *("codec", "bytes/token", "ratio", "file ratio", "key RMS", "value RMS", "encode GB/s", "decode GB/s"),
    *("codes GB/s", "plain GB/s", "KL", "95% interval", "top-1"),
)


@dataclass(frozen=True)
class CodecRow:
    """One codec or pair over all questions.

    `ratio` is bf16's bytes over these, of the numbers alone; `file_ratio` of whole files, headers and padding included.
    Errors are root mean squares relative to what was encoded. `encode_gb_s` (checksums included), `decode_gb_s` and
    `plain_gb_s` (the slow twin of placing; None where it was not timed) count the bf16 bytes that go in or come out,
    `codes_gb_s` the encoded bytes that decoding reads; medians over questions. `kl` (nats) and `top1` are means over
    questions of the means along an answer, `kl_low` and `kl_high` the 95% bootstrap interval, `n` the questions.
    """

    name: str
    keys: str
    values: str
    bytes_per_token: float
    ratio: float
    file_bytes_per_token: float
    file_ratio: float
    key_rms: float
    value_rms: float
    encode_gb_s: float
    decode_gb_s: float
    codes_gb_s: float
    plain_gb_s: float | None
    kl: float
    kl_low: float
    kl_high: float
    top1: float
    n: int

    @classmethod
    def of(cls, samples: Sequence[CodecSample]) -> "CodecRow":
        """One row of all samples of a pair, none of them refused."""
        pair = samples[0].pair
        tokens, body = sum(s.tokens for s in samples), sum(s.body_bytes for s in samples)
        files, plain = sum(s.file_bytes for s in samples), [s for s in samples if s.plain_s]
        scored = [s.divergence for s in samples if s.divergence is not None]
        kl = mean_interval([one.mean_kl for one in scored])
        return cls(
            name=pair.name,
            keys=pair.keys,
            values=pair.values,
            bytes_per_token=body / tokens,
            ratio=sum(s.bf16_bytes for s in samples) / body,
            file_bytes_per_token=files / tokens,
            file_ratio=sum(s.bf16_file_bytes for s in samples) / files,
            key_rms=_relative(sum(s.key_error for s in samples), sum(s.key_power for s in samples)),
            value_rms=_relative(sum(s.value_error for s in samples), sum(s.value_power for s in samples)),
            encode_gb_s=median([s.bf16_bytes / s.encode_s / 1e9 for s in samples]),
            decode_gb_s=median([s.bf16_bytes / s.place_s / 1e9 for s in samples]),
            codes_gb_s=median([s.body_bytes / s.place_s / 1e9 for s in samples]),
            plain_gb_s=median([s.bf16_bytes / s.plain_s / 1e9 for s in plain]) if plain else None,
            kl=kl.mean,
            kl_low=kl.low,
            kl_high=kl.high,
            top1=sum(one.top1 for one in scored) / len(scored),
            n=len(scored),
        )


@dataclass(frozen=True)
class CodecsResult:
    """`rows` are in order of size, the largest first; `refused` says by name why a codec could not be measured."""

    rows: tuple[CodecRow, ...]
    refused: dict[str, str]
    facts: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The object that `bench codecs --json` prints."""
        return {"rows": [asdict(row) for row in self.rows], "refused": self.refused, **self.facts}

    def as_table(self) -> str:
        """For people."""
        facts = self.facts
        lines = [
            format_table(_COLUMNS, [_cells(row) for row in self.rows]),
            "",
            f"KL (nats) and top-1 against uncompressed KV along answers of up to {facts['answer_tokens']} tokens:"
            f" {facts['questions']} questions, {facts['chunks']:.0f} chunks and {facts['prompt_tokens']:.0f} prompt"
            f" tokens in the middle; {facts['data']}",
            "bf16 is rotated twice, as all stored KV is: what it costs is not the codec's. GB/s are of bf16, but codes"
            f" GB/s; decode by {facts['placer']}",
            *(f"{name}: not measured: {reason}" for name, reason in self.refused.items()),
            f"{facts['model']}, {machine_line(facts['machine'])}",
        ]
        return "\n".join(lines)

    def panels(self) -> tuple[Panel, ...]:
        """Error against size (HA-RAG, Figure 9, and what the error does to answers)."""
        size = "bytes a token, keys and values"
        kl = [row for row in self.rows if row.kl > 0]
        series = Series(
            "KL",
            tuple(row.bytes_per_token for row in kl),
            tuple(row.kl for row in kl),
            tuple(row.name for row in kl),
            tuple(row.kl_low for row in kl),
            tuple(row.kl_high for row in kl),
        )
        across = tuple(row.bytes_per_token for row in self.rows)
        names = tuple(row.name for row in self.rows)
        errors = (
            Series("keys", across, tuple(100 * row.key_rms for row in self.rows), names),
            Series("values", across, tuple(100 * row.value_rms for row in self.rows)),
        )
        return (
            Panel(size, "mean KL to uncompressed KV (nats)", (series,), log_y=True),
            Panel(size, "relative RMS error (%)", errors),
        )


def rows_of(measured: Sequence[QuestionSamples]) -> tuple[tuple[CodecRow, ...], dict[str, str]]:
    """Rows by size, and the pairs that some chunk refused with the reason of the first."""
    names = list(measured[0].samples)
    refused, rows = {}, []
    for name in names:
        samples = [question.samples[name] for question in measured]
        refusals = [sample.refusal for sample in samples if sample.refusal]
        if refusals:
            refused[name] = refusals[0]
        else:
            rows.append(CodecRow.of(samples))
    return tuple(sorted(rows, key=lambda row: (-row.bytes_per_token, row.name))), refused


def _relative(error: float, power: float) -> float:
    return float((error / power) ** 0.5) if power else 0.0


def _cells(row: CodecRow) -> tuple[str, ...]:
    return (
        row.name,
        f"{row.bytes_per_token:.0f}",
        f"{row.ratio:.3f}",
        f"{row.file_ratio:.3f}",
        f"{row.key_rms:.2%}",
        f"{row.value_rms:.2%}",
        f"{row.encode_gb_s:.2f}",
        f"{row.decode_gb_s:.2f}",
        f"{row.codes_gb_s:.2f}",
        "–" if row.plain_gb_s is None else f"{row.plain_gb_s:.2f}",
        f"{row.kl:.5f}",
        f"{row.kl_low:.5f}–{row.kl_high:.5f}",
        f"{row.top1:.3f}",
    )
