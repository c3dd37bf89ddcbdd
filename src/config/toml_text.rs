//! Values in the syntax of TOML.

use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;

pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

pub(super) fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

pub(super) fn list(items: impl IntoIterator<Item: ToString>) -> String {
    let items: Vec<_> = items
        .into_iter()
        .map(|item| quoted(&item.to_string()))
        .collect();
    format!("[{}]", items.join(", "))
}

/// Returns an inline table. A name is in quotes if it is not a bare key.
pub(super) fn table<'a>(entries: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let bare = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let name = |name: &str| {
        if bare(name) {
            name.to_owned()
        } else {
            quoted(name)
        }
    };
    let entries: Vec<_> = entries
        .into_iter()
        .map(|(key, value)| format!("{} = {value}", name(key)))
        .collect();
    if entries.is_empty() {
        "{}".to_owned()
    } else {
        format!("{{ {} }}", entries.join(", "))
    }
}

/// A suffix that ends with another suffix comes first.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 24 * 3_600_000),
];
/// An upper bound that avoids overflow in timers.
const MAX_MILLIS: u64 = 3650 * 24 * 3_600_000;

pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let after = &rest[digits..];
        let letters = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &after[..letters])?;
        millis = millis.checked_add(number.checked_mul(*unit)?)?;
        rest = &after[letters..];
    }
    (!text.is_empty() && millis <= MAX_MILLIS).then(|| Duration::from_millis(millis))
}

/// Formats a duration in the largest unit that is exact.
pub(super) fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let exact = UNITS
        .iter()
        .rev()
        .find(|(_, unit)| millis >= *unit && millis.is_multiple_of(*unit));
    exact.map_or_else(
        || "0s".to_owned(),
        |(name, unit)| format!("{}{name}", millis / unit),
    )
}

pub(super) fn parse_size(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(|size| size.as_u64())
}

/// Formats a size in the largest unit that is exact.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let exact = units
        .iter()
        .find(|(_, shift)| bytes >= 1 << shift && bytes.trailing_zeros() >= *shift);
    exact.map_or_else(
        || format!("{bytes}B"),
        |(name, shift)| format!("{}{name}", bytes >> shift),
    )
}

#[cfg(test)]
mod units_tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for text in [
            "1ms", "500ms", "1500ms", "10s", "10m", "90m", "1h", "30d", "0s",
        ] {
            assert_eq!(duration_text(parse_duration(text).unwrap()), text);
        }
        assert_eq!(parse_duration("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(
            parse_duration("60s").map(duration_text).as_deref(),
            Some("1m")
        );
        for wrong in [
            "",
            "10",
            "m",
            "10 m",
            "-1s",
            "1.5h",
            "10M",
            "3651d",
            "99999999999999999999d",
            "1m1",
        ] {
            assert_eq!(parse_duration(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn sizes_round_trip() {
        for text in ["1B", "1000B", "1KiB", "1536B", "16MiB", "10GiB"] {
            assert_eq!(size_text(parse_size(text).unwrap()), text);
        }
        assert_eq!(parse_size("1024"), Some(1024));
        for wrong in ["", "MiB", "-1", "16 cats"] {
            assert_eq!(parse_size(wrong), None, "{wrong:?}");
        }
    }
}
