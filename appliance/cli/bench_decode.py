"""`appliance bench decode`"""

from pathlib import Path

import click

from appliance.cli.options import common_options, current_settings
from appliance.cli.output import print_json, stage_bar


@click.command()
@click.option("--data", multiple=True, type=click.Path(path_type=Path), help="Documents, a folder, or a question set.")
@click.option("--context-tokens", default=2000, show_default=True, help="What stands before the first new token.")
@click.option("--new-tokens", default=64, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--llama-cpp", metavar="FILE.gguf", type=click.Path(path_type=Path), help="Measure llama.cpp with it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@common_options
def decode(
    data: tuple[Path, ...],
    context_tokens: int,
    new_tokens: int,
    rounds: int,
    llama_cpp: Path | None,
    as_json: bool,
    weights_list: str,
) -> None:
    """Milliseconds a token after a long context, against transformers' own generate and llama.cpp."""
    from appliance.benches.decode import DecodeBenchSettings, run_decode_bench, table_of

    names = tuple(name.strip() for name in weights_list.split(",") if name.strip())
    chosen = DecodeBenchSettings(data, context_tokens, new_tokens, rounds, names, llama_cpp)
    with stage_bar() as progress:
        result = run_decode_bench(current_settings(), chosen, progress)
    if as_json:
        print_json(result.as_json())
    else:
        click.echo(table_of(result))


# Here --weights is a list, in the place of the common option.
decode.params = [parameter for parameter in decode.params if parameter.name != "weights"]
decode.params.append(
    click.Option(
        ["--weights", "weights_list"], metavar="A,B,…", default="bf16", show_default=True, help="bf16, int8, int4."
    )
)
