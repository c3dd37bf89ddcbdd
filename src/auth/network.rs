//! Ranges of IP addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// A range of IP addresses such as `10.0.0.0/8`. A single address is a range of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or a range such as 10.0.0.0/8")]
pub struct NetworkError;

impl Network {
    /// Returns true if the range contains the address. An IPv4 address that is mapped to IPv6 counts as the
    /// IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        range.map(Self).map_err(|_| NetworkError)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = &self.0;
        if range.prefix_len() == range.max_prefix_len() {
            range.addr().fmt(f)
        } else {
            range.fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_addresses_with_their_prefix() {
        let contains = |range: &str, address: &str| {
            range
                .parse::<Network>()
                .unwrap()
                .contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.1", "10.0.0.1"));
        assert!(contains("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("10.0.0.0/8", "10.255.0.9"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        for wrong in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "proxy.example",
            "::/129",
        ] {
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong:?}");
        }
    }
}
