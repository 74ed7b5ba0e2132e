"""The commands behind ./dev; run them through it, so that the environment is right."""

from __future__ import annotations

import sys

import click

from tools import campaign, cases, checks, suite, wheels
from tools.services import missing

PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": True}
without_option = click.option("--without", default="", metavar="A,B", help="Leave out tests that need these services.")
rest = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


@click.group()
def main() -> None:
    """Test, check and measure flask-idempotency."""


@main.command(context_settings=PASS_ON)
@without_option
@rest
def test(without: str, arguments: tuple[str, ...]) -> None:
    """Everything; further arguments go to pytest."""
    sys.exit(suite.run(without, arguments))


@main.command("apt-packages", context_settings=PASS_ON)
@without_option
@rest
def apt_packages(without: str, arguments: tuple[str, ...]) -> None:
    """The Debian packages of the services that are missing, in one line."""
    del arguments  # those of ./dev test; only --without counts here
    click.echo(" ".join(s.apt for s in missing(without.split(",")) if s.apt))


@main.command("extra-wheels")
def extra_wheels() -> None:
    """Servers whose wheel is for another Python than this one."""
    wheels.install()


@main.command()
def lint() -> None:
    """Lint, format, types and layers."""
    sys.exit(1 if checks.failures(checks.LINT) else 0)


@main.command()
def docs() -> None:
    """Build the documentation; every warning is an error."""
    if checks.failures([checks.DOCS]):
        sys.exit(1)
    click.echo(checks.DOCS_OUT / "index.html")


@main.command("cases")
@click.option("--list", "only_list", is_flag=True, help="Only list; run nothing.")
def cases_command(only_list: bool) -> None:
    """List rows and cases with their tests, then run those with the product switched off: they must fail."""
    sys.exit(cases.run(only_list=only_list))


@main.command("campaign")
@click.argument("name", required=False)
@click.option("--minutes", type=float, default=1.0, show_default=True)
@click.option("--seed", type=int, default=None, help="Repeats a run; a new one each time if not given.")
def campaign_command(name: str | None, minutes: float, seed: int | None) -> None:
    """A long random run, or the list of them."""
    sys.exit(campaign.run(name, minutes, seed))


main(prog_name="./dev")
