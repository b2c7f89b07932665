"""The experiment file: TOML read strictly into frozen dataclasses, with the origin of every value.

`sections.py` says which keys there are, `schema.py` builds dataclasses from tables and describes them to editors,
`toml.py` puts file, environment and command line together, and writes a configuration as TOML again.
"""

from dmkl.config.schema import construct, json_schema, refuse_unknown, require_table
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
from dmkl.config.toml import Settings, from_environment, parse_config, read_config, to_toml, toml_key, toml_value

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
