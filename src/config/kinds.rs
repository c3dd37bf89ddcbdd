//! The kinds of values that keys have: one module for each kind, with its reader and printer.

use super::error::ConfigError;
use super::section::Field;
use super::units::{duration_text, size_text};

fn require_non_zero<T: PartialEq + Default>(field: &Field, value: T) -> Result<T, ConfigError> {
    if value == T::default() { Err(field.invalid("must be more than 0")) } else { Ok(value) }
}

pub(super) mod time {
    use super::{ConfigError, Field, duration_text, require_non_zero};
    use std::time::Duration;

    pub(in crate::config) fn read(field: &Field) -> Result<Duration, ConfigError> {
        require_non_zero(field, field.duration()?)
    }

    pub(in crate::config) fn show(value: Duration) -> String {
        format!("\"{}\"", duration_text(value))
    }
}

pub(super) mod time_or_none {
    use super::{ConfigError, Field};
    use std::time::Duration;

    pub(in crate::config) use super::time::show;

    pub(in crate::config) fn read(field: &Field) -> Result<Duration, ConfigError> {
        field.duration()
    }
}

pub(super) mod size {
    use super::{ConfigError, Field, require_non_zero, size_text};

    pub(in crate::config) fn read<T: TryFrom<u64> + PartialEq + Default>(
        field: &Field,
    ) -> Result<T, ConfigError> {
        require_non_zero(field, field.size()?)
    }

    pub(in crate::config) fn show<T: TryInto<u64>>(value: T) -> String {
        format!("\"{}\"", size_text(value.try_into().unwrap_or(u64::MAX)))
    }
}

pub(super) mod size_or_none {
    use super::{ConfigError, Field};

    pub(in crate::config) use super::size::show;

    pub(in crate::config) fn read(field: &Field) -> Result<u64, ConfigError> {
        field.size()
    }
}

pub(super) mod count {
    use super::{ConfigError, Field, require_non_zero};

    pub(in crate::config) fn read<T: TryFrom<u64> + PartialEq + Default>(
        field: &Field,
    ) -> Result<T, ConfigError> {
        require_non_zero(field, field.count()?)
    }

    pub(in crate::config) fn show<T: ToString + Copy>(value: T) -> String {
        value.to_string()
    }
}

pub(super) mod count_or_none {
    use super::{ConfigError, Field};

    pub(in crate::config) use super::count::show;

    pub(in crate::config) fn read(field: &Field) -> Result<usize, ConfigError> {
        field.count()
    }
}

pub(super) mod percent {
    use super::{ConfigError, Field};

    pub(in crate::config) use super::count::show;

    pub(in crate::config) fn read(field: &Field) -> Result<u64, ConfigError> {
        match field.count()? {
            percent @ 0..=100 => Ok(percent),
            _ => Err(field.invalid("must be at most 100")),
        }
    }
}
