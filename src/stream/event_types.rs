//! The event types that a client selects.

/// A selection of event types. Control frames (`ready`, `position`, `reset`, `problem`, `shutdown`, `end`) are
/// always sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTypes {
    All,
    /// All types except the frequent ones. The default for streams over all sessions.
    NoBulk,
    /// These types. A name that ends with a dot selects all types with that prefix.
    Only(Vec<String>),
}

impl EventTypes {
    /// Parses a list such as `prompt.,request.created`. `None` if the list is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_lowercase() || matches!(b, b'.' | b'_');
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        let valid = names.len() <= 64
            && names
                .iter()
                .all(|name| !name.is_empty() && name.bytes().all(plain));
        valid.then_some(Self::Only(names))
    }

    pub fn contains(&self, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::NoBulk => !matches!(kind, "session.update" | "terminal.output" | "extension"),
            Self::Only(names) => names
                .iter()
                .any(|name| kind == name || name.ends_with('.') && kind.starts_with(name.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_full_names_or_prefixes_with_a_dot() {
        let types = EventTypes::parse("prompt.,request.created").unwrap();
        for (kind, kept) in [
            ("prompt.started", true),
            ("request.created", true),
            ("request.resolved", false),
            ("prompt", false),
            ("session.update", false),
        ] {
            assert_eq!(types.contains(kind), kept, "{kind}");
        }
        for wrong in ["", "a,", "a b", "A", "a\nb"] {
            assert_eq!(EventTypes::parse(wrong), None, "{wrong:?}");
        }
    }
}
