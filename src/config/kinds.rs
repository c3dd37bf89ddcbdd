//! The kinds of values that keys have: how each is read and printed.

use std::fmt::Display;
use std::time::Duration;

use super::error::ConfigError;
use super::section::Field;
use super::toml_text::{list, quoted};
use super::units::{duration_text, size_text};

/// The reader and the printer of a value.
pub(super) struct Kind<T> {
    pub(super) read: fn(Field) -> Result<T, ConfigError>,
    /// Returns the value in the syntax of the file, or an empty text if there is none.
    pub(super) show: fn(&T) -> String,
}

pub(super) fn time() -> Kind<Duration> {
    Kind {
        read: |field| non_zero(&field, field.duration()?),
        ..time_or_zero()
    }
}

pub(super) fn time_or_zero() -> Kind<Duration> {
    Kind {
        read: |field| field.duration(),
        show: |value| quoted(&duration_text(*value)),
    }
}

/// The type of a count or of a size in bytes.
pub(super) trait Number:
    Copy + Default + Display + PartialEq + TryFrom<u64> + TryInto<u64>
{
}

impl<T: Copy + Default + Display + PartialEq + TryFrom<u64> + TryInto<u64>> Number for T {}

pub(super) fn size<T: Number>() -> Kind<T> {
    Kind {
        read: |field| non_zero(&field, field.size()?),
        ..size_or_zero()
    }
}

pub(super) fn size_or_zero<T: Number>() -> Kind<T> {
    Kind {
        read: |field| field.size(),
        show: |value| quoted(&size_text((*value).try_into().unwrap_or(u64::MAX))),
    }
}

pub(super) fn count<T: Number>() -> Kind<T> {
    Kind {
        read: |field| non_zero(&field, field.count()?),
        ..count_or_zero()
    }
}

pub(super) fn count_or_zero<T: Number>() -> Kind<T> {
    Kind {
        read: |field| field.count(),
        show: T::to_string,
    }
}

pub(super) fn percent() -> Kind<u64> {
    let read = |field: Field| match field.count()? {
        percent @ 0..=100 => Ok(percent),
        _ => Err(field.invalid("must be at most 100")),
    };
    Kind {
        read,
        ..count_or_zero()
    }
}

fn non_zero<T: PartialEq + Default>(field: &Field, value: T) -> Result<T, ConfigError> {
    if value == T::default() {
        Err(field.invalid("must be more than 0"))
    } else {
        Ok(value)
    }
}

pub(super) fn switch() -> Kind<bool> {
    Kind {
        read: |field| field.boolean(),
        show: bool::to_string,
    }
}

pub(super) fn strings() -> Kind<Vec<String>> {
    Kind {
        read: |field| field.each(|item| item.string().map(str::to_owned)),
        show: |value| list(value),
    }
}

/// A type whose values are words in the file.
pub(super) trait Words: Copy + PartialEq + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

pub(super) fn word<T: Words>() -> Kind<T> {
    Kind {
        read: |field| field.choice(T::WORDS),
        show: |value| {
            let found = T::WORDS.iter().find(|(_, known)| known == value);
            quoted(found.map_or("", |(word, _)| word))
        },
    }
}
