"""The experiment file: TOML read strictly into frozen dataclasses, with the origin of every value.

`sections.py` says which keys there are, `strict.py` builds dataclasses from tables, `reading.py` puts file, environment
and command line together, `toml.py` writes a configuration as TOML again, `schema.py` describes it to editors.
"""

from dmkl.config.reading import Settings, from_environment, parse_config, read_config
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
    key,
)
from dmkl.config.strict import construct, refuse_unknown, require_table
from dmkl.config.toml import to_toml, toml_key, toml_value

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
    "key",
    "parse_config",
    "read_config",
    "refuse_unknown",
    "require_table",
    "to_toml",
    "toml_key",
    "toml_value",
]
