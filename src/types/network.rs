//! A range of IP addresses such as `10.0.0.0/8`. A single address is a range with one member.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The addresses whose first `prefix` bits equal those of `address`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or a range such as 10.0.0.0/8")]
pub struct NetworkError;

impl Network {
    /// Returns true if the range contains the address. An IPv4 address that is mapped to IPv6 counts as the
    /// IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = u128::from(own.to_bits() ^ other.to_bits());
                differs.checked_shr(u32::from(32 - self.prefix)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(u32::from(128 - self.prefix)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), str::parse).map_err(|_| NetworkError)?;
        if prefix > bits { Err(NetworkError) } else { Ok(Self { address, prefix }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.prefix == if self.address.is_ipv4() { 32 } else { 128 };
        if whole { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.prefix) }
    }
}

text_form!(Network);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_addresses_with_their_prefix() {
        let contains =
            |range: &str, address: &str| range.parse::<Network>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.0.0.1", "10.0.0.1"));
        assert!(contains("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("10.0.0.0/8", "10.255.0.9"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        for wrong in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "proxy.example", "::/129"] {
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong:?}");
        }
    }
}
