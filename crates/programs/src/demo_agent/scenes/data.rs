//! The scenes that are data: `scenes.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

pub(super) static SCENES: LazyLock<Scenes> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../scenes.json"))
        .expect("the file is valid: a test reads it")
});

#[derive(Debug, Deserialize)]
pub(super) struct Scenes {
    pub(super) commands: Vec<Command>,
    /// Scripts that several scenes use.
    pub(super) parts: BTreeMap<String, Vec<Action>>,
    /// The text of a long answer.
    pub(super) paragraphs: Vec<String>,
}

/// A command of a prompt that begins with a slash.
#[derive(Debug, Deserialize)]
pub(super) struct Command {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) hint: Option<String>,
    /// The capability of the client that the command needs, and the answer without it.
    pub(super) needs: Option<String>,
    #[serde(default)]
    pub(super) refusal: String,
    /// The script. Without one, a function has the command's name.
    #[serde(default)]
    pub(super) steps: Vec<Action>,
    /// Other scripts, by the input of the command.
    #[serde(default)]
    pub(super) cases: BTreeMap<String, Vec<Action>>,
}

/// One step of a script. Texts may contain the placeholders of the player of scripts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Say(String),
    Think(String),
    /// A content block, as a part of the message.
    Block(Value),
    /// A message after the end of the turn.
    Late(String),
    /// A number of beats.
    Pause(u32),
    Update(Value),
    /// An update of the subagent's session.
    Child(Value),
    Plan(Vec<String>),
    /// Completes a step of the plan.
    Advance,
    /// Announces a tool call. The following steps are about the last one.
    Call(Value),
    /// Announces a tool call that needs a permission.
    Ask(Value),
    AskInAnyMode(Value),
    Allowed(Vec<Action>),
    Denied(Vec<Action>),
    Progress(Value),
    Done(String),
    Failed(String),
    Simulate {
        command: String,
        lines: Vec<String>,
        beats: u32,
    },
    Part(String),
    /// A part, unless the length of answers is `short`.
    UnlessShort(String),
    IfLong(String),
    /// Ends the turn with this stop reason.
    Stop(String),
    Fail(String),
    Crash,
}

impl Scenes {
    pub(super) fn command(&self, name: &str) -> Option<&Command> {
        self.commands.iter().find(|command| command.name == name)
    }
}
