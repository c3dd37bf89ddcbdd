//! The id of a response: `resp_<session>_<turn>`, and `_<number>` from the second response of a turn on.

use std::fmt;
use std::str::FromStr;

use crate::surface::chat::QuestionId;
use crate::types::ids::IdError;
use crate::types::{PromptId, RequestId, SessionId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
    /// From 1.
    pub(super) number: u32,
}

impl ResponseId {
    /// The id of a request of the agent in the turn.
    pub(super) const fn question(&self, request: RequestId) -> QuestionId {
        QuestionId {
            session: self.session,
            prompt: self.prompt,
            request,
        }
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resp_{}_{}", self.session, self.prompt)?;
        if self.number > 1 {
            write!(f, "_{}", self.number)
        } else {
            Ok(())
        }
    }
}

impl FromStr for ResponseId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut parts = text.strip_prefix("resp_").ok_or(IdError)?.split('_');
        let session = parts.next().ok_or(IdError)?.parse()?;
        let prompt = parts.next().ok_or(IdError)?.parse()?;
        let number = match parts.next() {
            None => 1,
            Some(number) => number
                .parse()
                .ok()
                .filter(|number| *number > 1)
                .ok_or(IdError)?,
        };
        if parts.next().is_some() {
            Err(IdError)
        } else {
            Ok(Self {
                session,
                prompt,
                number,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_has_one_text() {
        let session = "01990000-0000-7000-8000-000000000000";
        for text in [
            format!("resp_{session}_p1"),
            format!("resp_{session}_p12_3"),
        ] {
            assert_eq!(text.parse::<ResponseId>().expect("an id").to_string(), text);
        }
        for wrong in ["", "resp_", "resp_x_p1", "msg_1"] {
            assert!(wrong.parse::<ResponseId>().is_err(), "{wrong}");
        }
        for wrong in ["", "_p0", "_p1_1", "_p1_x", "_p1_2_3"] {
            assert!(
                format!("resp_{session}{wrong}")
                    .parse::<ResponseId>()
                    .is_err(),
                "{wrong}"
            );
        }
    }
}
