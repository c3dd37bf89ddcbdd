//! The name of a host, or of all hosts below a domain.

use std::fmt;
use std::str::FromStr;

/// `hooks.example`, an address, or `*.example` for all names below `example`, without `example` itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// In lower case, without the `*.`.
    name: String,
    is_domain: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a host such as hooks.example or *.example.org, without scheme, port and path")]
pub struct HostPatternError;

impl HostPattern {
    /// Whether the host of a URL matches. The host of an IPv6 address has brackets.
    pub fn matches(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        if !self.is_domain {
            return host == self.name;
        }
        host.strip_suffix(&self.name)
            .and_then(|rest| rest.strip_suffix('.'))
            .is_some_and(|rest| !rest.is_empty())
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (is_domain, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let is_address = !is_domain && name.starts_with('[') && name.ends_with(']');
        let is_label = |label: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty() && label.len() <= 63 && label.bytes().all(is_plain)
        };
        let is_valid = if is_address {
            name[1..name.len() - 1]
                .parse::<std::net::Ipv6Addr>()
                .is_ok()
        } else {
            name.len() <= 253 && name.split('.').all(is_label)
        };
        if is_valid {
            Ok(Self {
                name: name.to_ascii_lowercase(),
                is_domain,
            })
        } else {
            Err(HostPatternError)
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_domain { "*." } else { "" };
        write!(f, "{prefix}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_labels() {
        for (pattern, host, expected) in [
            ("hooks.example", "hooks.example", true),
            ("hooks.example", "HOOKS.example", true),
            ("hooks.example", "a.hooks.example", false),
            ("hooks.example", "hooks.example.evil", false),
            ("*.example", "a.example", true),
            ("*.example", "b.a.example", true),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("*.example", "evilexample", false),
            ("[::1]", "[::1]", true),
            ("1.1.1.1", "1.1.1.1", true),
        ] {
            let parsed: HostPattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(host), expected, "{pattern} {host}");
            assert_eq!(parsed.to_string(), pattern);
        }
        for wrong in [
            "",
            "*",
            "*.",
            "https://a",
            "a/b",
            "a:443",
            "a..b",
            "*.[::1]",
            "[a]",
            "a.*",
        ] {
            assert_eq!(
                wrong.parse::<HostPattern>(),
                Err(HostPatternError),
                "{wrong}"
            );
        }
    }
}
