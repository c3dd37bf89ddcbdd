//! The mode and the configuration options of a session.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    ConfigOptionUpdate, CurrentModeUpdate, Error, SessionConfigOption, SessionConfigSelectOption,
    SessionMode, SessionModeState, SessionUpdate,
};
use serde::{Deserialize, Serialize};

/// A value from a short list that the client shows.
pub(super) trait Choice: Copy + PartialEq + 'static {
    /// Each value, its id on the wire, its name, and its description.
    const ALL: &'static [(Self, &'static str, &'static str, &'static str)];

    fn from_id(id: &str) -> Option<Self> {
        Self::ALL.iter().find(|choice| choice.1 == id).map(|choice| choice.0)
    }

    fn id(self) -> &'static str {
        Self::ALL.iter().find(|choice| choice.0 == self).map_or("", |choice| choice.1)
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|choice| choice.0 == self).map_or("", |choice| choice.2)
    }
}

/// The actions that need no permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    #[default]
    Ask,
    Auto,
    Plan,
}

impl Choice for Mode {
    const ALL: &'static [(Self, &'static str, &'static str, &'static str)] = &[
        (Self::Ask, "ask", "Ask", "Asks before it changes a file or runs a command"),
        (Self::Auto, "auto", "Auto", "Changes files and runs commands without asking"),
        (Self::Plan, "plan", "Plan only", "Describes its plan and changes nothing"),
    ];
}

impl Mode {
    pub(super) fn update(self) -> SessionUpdate {
        SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(self.id()))
    }

    pub(super) fn state(self) -> SessionModeState {
        let modes = Self::ALL
            .iter()
            .map(|(_, id, name, meaning)| SessionMode::new(*id, *name).description((*meaning).to_owned()))
            .collect();
        SessionModeState::new(self.id(), modes)
    }
}

/// The speed of the scenes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pace {
    Instant,
    Brisk,
    #[default]
    Natural,
    Leisurely,
}

impl Choice for Pace {
    const ALL: &'static [(Self, &'static str, &'static str, &'static str)] = &[
        (Self::Instant, "instant", "Instant", "No pauses at all"),
        (Self::Brisk, "brisk", "Brisk", "Like a fast model"),
        (Self::Natural, "natural", "Natural", "Like a typical model"),
        (Self::Leisurely, "leisurely", "Leisurely", "Slow enough to watch each step"),
    ];
}

impl Pace {
    /// The time between two chunks of text. Every other pause is a multiple of it.
    pub(super) fn beat(self) -> Duration {
        Duration::from_millis(match self {
            Self::Instant => 0,
            Self::Brisk => 8,
            Self::Natural => 24,
            Self::Leisurely => 80,
        })
    }
}

/// The length of the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Length {
    Short,
    #[default]
    Normal,
    Long,
}

impl Choice for Length {
    const ALL: &'static [(Self, &'static str, &'static str, &'static str)] = &[
        (Self::Short, "short", "Short", "A few sentences"),
        (Self::Normal, "normal", "Normal", "A few paragraphs"),
        (Self::Long, "long", "Long", "With background information"),
    ];
}

const PACE: &str = "pace";
const LENGTH: &str = "length";
const THOUGHTS: &str = "thoughts";

/// The options of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Options {
    pub(super) pace: Pace,
    pub(super) length: Length,
    pub(super) thoughts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { pace: Pace::default(), length: Length::default(), thoughts: true }
    }
}

impl Options {
    /// The complete list of options, for a client that did not change them itself.
    pub(super) fn update(self, booleans: bool) -> SessionUpdate {
        SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(self.list(booleans)))
    }

    /// Sets an option by the id of its value, or a boolean option.
    pub(super) fn set(&mut self, option: &str, id: Option<&str>, on: Option<bool>) -> Result<(), Error> {
        let wrong = || Error::invalid_params().data("the option has no such value");
        match option {
            PACE => self.pace = id.and_then(Pace::from_id).ok_or_else(wrong)?,
            LENGTH => self.length = id.and_then(Length::from_id).ok_or_else(wrong)?,
            THOUGHTS => self.thoughts = on.ok_or_else(wrong)?,
            _ => return Err(Error::invalid_params().data("configId is not an option of the session")),
        }
        Ok(())
    }

    /// The complete list. Boolean options are only for clients that support them.
    pub(super) fn list(self, booleans: bool) -> Vec<SessionConfigOption> {
        let mut list = vec![
            select(PACE, "Pace", "Speed of the demo", self.pace),
            select(LENGTH, "Answer length", "Length of the answers", self.length),
        ];
        if booleans {
            list.push(
                SessionConfigOption::boolean(THOUGHTS, "Think aloud", self.thoughts)
                    .description("Streams the demo's thoughts before its answers".to_owned()),
            );
        }
        list
    }
}

fn select<C: Choice>(id: &'static str, name: &str, meaning: &str, current: C) -> SessionConfigOption {
    SessionConfigOption::select(id, name, current.id(), select_values::<C>()).description(meaning.to_owned())
}

pub(super) fn select_values<C: Choice>() -> Vec<SessionConfigSelectOption> {
    C::ALL
        .iter()
        .map(|(_, id, name, meaning)| {
            SessionConfigSelectOption::new(*id, *name).description((*meaning).to_owned())
        })
        .collect()
}
