//! The variations of the protocol: the names of methods, the version in `initialize`, and the shape of a prompt.
//!
//! The translation learns a variation from the answer to `initialize`, and from an error to the first attempt.

use crate::acp::{error_code, method};
use crate::translate::early_acp::names;

/// The version in `initialize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::translate) enum Opening {
    /// The text "1.0".
    Text,
    /// The number 1, as in ACP.
    Number,
}

impl Opening {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Text => Self::Number,
            Self::Number => Self::Text,
        }
    }
}

/// The names of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// `agent/createSession`, `agent/prompt`, `agent/cancelSession`.
    Early,
    /// `session/new`, `session/prompt`, `session/cancel`.
    Modern,
}

impl Names {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Early => Self::Modern,
            Self::Modern => Self::Early,
        }
    }
}

/// The method and the members of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptForm {
    /// `agent/prompt` with the text in `prompt`.
    Text,
    /// `session/prompt` with the blocks in `prompt` and in `content`, because an agent can treat a missing member as an
    /// empty prompt.
    Both,
    /// `session/prompt` with the blocks in `content`.
    Content,
    /// `session/prompt` as in ACP.
    Blocks,
}

const EARLY_FORMS: [PromptForm; 4] = [
    PromptForm::Text,
    PromptForm::Both,
    PromptForm::Content,
    PromptForm::Blocks,
];
const MODERN_FORMS: [PromptForm; 4] = [
    PromptForm::Both,
    PromptForm::Content,
    PromptForm::Blocks,
    PromptForm::Text,
];

impl PromptForm {
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Text => names::PROMPT,
            Self::Both | Self::Content | Self::Blocks => method::SESSION_PROMPT,
        }
    }

    pub(super) const fn names(self) -> Names {
        match self {
            Self::Text => Names::Early,
            Self::Both | Self::Content | Self::Blocks => Names::Modern,
        }
    }

    /// The form of the first attempt.
    pub(super) const fn first(names: Names) -> Self {
        match names {
            Names::Early => EARLY_FORMS[0],
            Names::Modern => MODERN_FORMS[0],
        }
    }

    /// The next attempt after an error with this code to a prompt in this form. An unknown method rules out all forms with
    /// the method.
    pub(super) fn next(self, names: Names, code: i64) -> Option<Self> {
        let forms = match names {
            Names::Early => EARLY_FORMS,
            Names::Modern => MODERN_FORMS,
        };
        let mut later = forms
            .into_iter()
            .skip_while(move |form| *form != self)
            .skip(1);
        match code {
            error_code::METHOD_NOT_FOUND => later.find(|form| form.method() != self.method()),
            error_code::INVALID_PARAMS => later.find(|form| form.method() == self.method()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_prompt_follows_from_the_errors_of_the_agent() {
        let attempts = |names, code| {
            let first = PromptForm::first(names);
            std::iter::successors(Some(first), |form| form.next(names, code)).collect::<Vec<_>>()
        };
        assert_eq!(
            attempts(Names::Early, -32601),
            [PromptForm::Text, PromptForm::Both]
        );
        assert_eq!(attempts(Names::Early, -32602), [PromptForm::Text]);
        assert_eq!(
            attempts(Names::Modern, -32602),
            [PromptForm::Both, PromptForm::Content, PromptForm::Blocks]
        );
        assert_eq!(
            attempts(Names::Modern, -32601),
            [PromptForm::Both, PromptForm::Text]
        );
        assert_eq!(attempts(Names::Modern, -32603), [PromptForm::Both]);
        assert_eq!(
            PromptForm::Both.next(Names::Early, -32602),
            Some(PromptForm::Content)
        );
    }
}
