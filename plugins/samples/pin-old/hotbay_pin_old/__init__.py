"""Rates endpoints by a table that is read with iniconfig 1.1.1, whatever another plugin or the host has installed."""

from dataclasses import dataclass
from importlib.metadata import version

from hotbay_sdk import Context, Endpoint, ParameterError, Plugin, Request, Scorer
from iniconfig import IniConfig, ParseError

plugin = Plugin("pin-old")


@dataclass(frozen=True)
class Parameters:
    """What an operator may set."""

    table: str = ""


@plugin.type("pin-old-scorer", parameters=Parameters, rowwise=True)
class PinOldScorer(Scorer):
    """The endpoint's rate in the table's section `rates`; without one, 1 / (1 + major version of iniconfig)."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        try:
            table = IniConfig("table", data=parameters.table or "[rates]")
        except ParseError as error:
            raise ParameterError("table", str(error)) from error
        rates = table.sections.get("rates", {})
        try:
            self._rates = {name: min(1.0, max(0.0, float(rate))) for name, rate in rates.items()}
        except ValueError as error:
            raise ParameterError("table", f"rates are numbers from 0 to 1: {error}") from error
        self._unknown = 1 / (1 + int(version("iniconfig").split(".")[0]))

    def score(self, request: Request, endpoint: Endpoint) -> float:
        """Rate one endpoint."""
        return self._rates.get(endpoint.id, self._unknown)
