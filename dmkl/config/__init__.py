"""The experiment file: TOML read strictly into frozen dataclasses, with the origin of every value.

`sections.py` says which keys there are, `strict.py` builds dataclasses from tables, `overrides.py` lays command line
and environment over a file, `reading.py` puts these together, `origins.py` writes a configuration down again,
`schema.py` describes it to editors.
"""

from dmkl.config.origins import to_toml, toml_key, toml_value
from dmkl.config.overrides import from_environment
from dmkl.config.reading import Settings, parse_config, read_config
from dmkl.config.schema import json_schema
from dmkl.config.sections import (
    KINDS,
    RULES,
    SECTIONS,
    TASKS,
    Config,
    DataConfig,
    FormulationConfig,
    KernelConfig,
    Parameters,
    RunConfig,
    SolveConfig,
    TuneConfig,
    ViewConfig,
)
from dmkl.config.strict import construct, refuse_unknown

__all__ = [
    "KINDS",
    "RULES",
    "SECTIONS",
    "TASKS",
    "Config",
    "DataConfig",
    "FormulationConfig",
    "KernelConfig",
    "Parameters",
    "RunConfig",
    "Settings",
    "SolveConfig",
    "TuneConfig",
    "ViewConfig",
    "construct",
    "from_environment",
    "json_schema",
    "parse_config",
    "read_config",
    "refuse_unknown",
    "to_toml",
    "toml_key",
    "toml_value",
]
