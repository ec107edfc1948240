"""Commands about paperformer itself, and where it runs."""

import json as json_format
import sys

from ..training.console.tables import align_rows


def doctor(json: bool = False) -> None:
    """Show what is installed and what this machine can do, and advise: a line for each thing that is missing or slow.

    Takes some seconds, in which speeds are measured. The exit code is 1 if something is missing that is needed.

    Args:
        json: Print JSON instead of text.
    """
    from ..diagnosis.advice import find_advice, find_problems
    from ..diagnosis.installation import describe_versions, find_packages
    from ..diagnosis.machine import examine_machine

    packages, machine = list(find_packages()), examine_machine()
    problems, advice = list(find_problems(packages)), list(find_advice(packages, machine))
    if json:
        facts = vars(machine) | {"free_disk": {str(folder): free for folder, free in machine.free_disk.items()}}
        found = {"versions": describe_versions(), "machine": facts, "problems": problems, "advice": advice}
        print(json_format.dumps(found, indent=2, default=str))
    else:
        float32, bf16 = machine.float32_flops / 1e9, machine.bf16_flops / 1e9
        rows = [
            ["computes on", f"{machine.hardware}, {machine.threads} thread{'s' if machine.threads != 1 else ''}"],
            ["products", f"{float32:,.0f} GFLOP/s in float32, {bf16:,.0f} in bf16"],
            ["memory", f"{machine.free_memory / 1e9:.1f} of {machine.memory / 1e9:.1f} GB free"],
            *(["disk", f"{free / 1e9:.0f} GB free in {folder}"] for folder, free in machine.free_disk.items()),
            ["Hub", f"{machine.hub}, {'logged in' if machine.has_token else 'not logged in'}"],
        ]  # fmt: skip
        print(describe_versions(), "", align_rows(rows), sep="\n")
        for title, lines in (("To be mended", problems), ("Advice", advice)):
            if lines:
                print("", f"{title}:", *(f"- {line}" for line in lines), sep="\n")
        if not problems:
            print("\nAll that is needed is installed.")
    sys.exit(1 if problems else 0)
