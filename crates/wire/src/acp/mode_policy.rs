//! Finds denied modes in the input of clients, and in the state that an agent reports.
//!
//! A mode can be selected by a mode id, by the value of an option, by a slash command, and by any other value that the
//! agent reads. Names are compared as in [`DeniedModes`].
//!
//! The comparison covers strings and member names at any depth, because each agent gives its own meaning to a value.
//! The gateway cannot rank the modes of an agent. Therefore, each change of a mode or an option, and each call by
//! name, needs the scope `approve`.
//!
//! If an agent changes its own mode, the gateway reports the change and does not revert it. A reversal would race with
//! running tools, and no mode is safe for every agent. The list does not confine an agent: isolation does.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use super::raw_object::{RawObject, elements, text_of};
use super::request::ConfigValue;
use super::update;
use crate::acp::DeniedModes;
use crate::acp::known_agents::is_mode_command;
use crate::jsonrpc::string_end;
use base::types::ModeSelection;
use base::types::text::strip_controls;

/// The categories of options that select no mode. They are not checked, because a model can be called `auto`.
const OTHER_CATEGORIES: [&str; 3] = ["model", "model_config", "thought_level"];

#[derive(Debug, Clone, Copy)]
pub struct ModePolicy<'a> {
    pub denied: &'a DeniedModes,
    pub modes: Option<&'a RawValue>,
    pub config_options: Option<&'a RawValue>,
}

impl<'a> ModePolicy<'a> {
    /// Returns the entry that denies this mode, by its id or by the name that the agent shows for it.
    pub fn find_mode(&self, id: &str) -> Option<&'a str> {
        // In ACP v2 the modes are values of an option.
        let values = || options(self.config_options).flat_map(|option| option.values);
        let by_name = || {
            let named = named_modes(self.modes).chain(values());
            let mut of_id = named.filter(|named| named.id == id);
            of_id.find_map(|named| self.denied.find(named.name.as_deref()?))
        };
        self.denied.find(id).or_else(by_name)
    }

    pub fn find_option(&self, id: &str, value: &ConfigValue<'_>) -> Option<&'a str> {
        let option = options(self.config_options).find(|option| option.id == id);
        let option = option.unwrap_or_else(|| ConfigOption::unknown(id));
        match value {
            ConfigValue::Id(value) => self.denied_value(&option, value),
            ConfigValue::Boolean(true) => self.denied_switch(&option),
            ConfigValue::Boolean(false) => None,
        }
    }

    /// Fails if the agent listed its modes without this one. An agent that listed none decides itself.
    pub fn check_mode_is_offered(&self, id: &str) -> Result<(), NotOffered> {
        let offered: Vec<_> = named_modes(self.modes).collect();
        if offered.is_empty() || offered.iter().any(|mode| mode.id == id) {
            return Ok(());
        }
        Err(NotOffered::new(
            "mode",
            offered.iter().map(|mode| &*mode.id),
        ))
    }

    /// Fails if the agent listed its options without this one, or the values of the option without this value. An agent that
    /// listed none decides itself.
    pub fn check_option_is_offered(
        &self,
        id: &str,
        value: &ConfigValue<'_>,
    ) -> Result<(), NotOffered> {
        let listed: Vec<_> = options(self.config_options).collect();
        if listed.is_empty() {
            return Ok(());
        }
        let Some(option) = listed.iter().find(|option| option.id == id) else {
            let ids = listed.iter().map(|option| &*option.id);
            return Err(NotOffered::new("option", ids));
        };
        let is_listed = match value {
            ConfigValue::Id(value) => option.values.iter().any(|known| known.id == *value),
            ConfigValue::Boolean(_) => false,
        };
        if option.values.is_empty() || is_listed {
            return Ok(());
        }
        let values = option.values.iter().map(|value| &*value.id);
        Err(NotOffered::new("value", values))
    }

    /// Returns the denied mode that the session has now.
    pub fn current(&self) -> Option<ModeSelection> {
        let modes = self.modes.and_then(RawObject::parse);
        let mode = modes.and_then(|modes| modes.text("currentModeId"));
        let mode = mode.filter(|id| self.find_mode(id).is_some());
        let mode = mode.map(|id| ModeSelection::mode(&id));
        mode.or_else(|| self.current_option())
    }

    /// Returns the denied mode that an update of the agent selects.
    pub fn of_update(&self, kind: &str, raw: &'a RawValue) -> Option<ModeSelection> {
        let member = |name| RawObject::parse(raw).and_then(|update| update.get(name));
        match kind {
            update::CURRENT_MODE => {
                let id = text_of(member("currentModeId")?).ok()?;
                self.find_mode(&id).map(|_| ModeSelection::mode(&id))
            }
            update::CONFIG_OPTION => Self {
                config_options: member("configOptions"),
                ..*self
            }
            .current_option(),
            _ => None,
        }
    }

    /// The denied modes and values that the agent offers. Parses the lists of the agent once, because they can be long.
    pub fn offered(&self) -> Vec<ModeSelection> {
        if self.denied.is_empty() {
            return Vec::new();
        }
        let modes: Vec<_> = named_modes(self.modes).collect();
        let offered: Vec<_> = options(self.config_options).collect();
        // As in `find_mode`, a name denies its id wherever the agent shows the name.
        let values = offered.iter().flat_map(|option| &option.values);
        let named = modes
            .iter()
            .chain(values)
            .filter(|named| self.denies(named));
        let ids: HashSet<&str> = named.map(|named| &*named.id).collect();
        let modes = modes.iter().filter(|mode| ids.contains(&*mode.id));
        let mut denied: Vec<_> = modes.map(|mode| ModeSelection::mode(&mode.id)).collect();
        for option in offered {
            let values = option.values.iter();
            let values = values.filter(|value| self.denied_value(&option, &value.id).is_some());
            denied.extend(values.map(|value| ModeSelection::option(&option.id, Some(&value.id))));
            if option.is_switch && self.denied_switch(&option).is_some() {
                denied.push(ModeSelection::option(&option.id, None));
            }
        }
        denied
    }

    fn denies(&self, named: &Named<'_>) -> bool {
        let mut texts = std::iter::once(&*named.id).chain(named.name.as_deref());
        texts.any(|text| self.denied.find(text).is_some())
    }

    fn current_option(&self) -> Option<ModeSelection> {
        options(self.config_options).find_map(|option| {
            let now = option.now?;
            if now.get() == "true" {
                self.denied_switch(&option)?;
                return Some(ModeSelection::option(&option.id, None));
            }
            let value = text_of(now).ok()?;
            self.denied_value(&option, &value)?;
            Some(ModeSelection::option(&option.id, Some(&value)))
        })
    }

    /// Returns the entry that denies this value, by its id, by its name, or by the option if the value switches it on.
    fn denied_value(&self, option: &ConfigOption<'_>, value: &str) -> Option<&'a str> {
        if option.is_other {
            return None;
        }
        let by_name = || {
            let known = option.values.iter().find(|known| known.id == value)?;
            self.denied.find(known.name.as_deref()?)
        };
        let by_value = self.denied.find(value).or_else(by_name);
        let off = ["off", "false", "no", "disabled"];
        if by_value.is_some() || off.iter().any(|off| value.eq_ignore_ascii_case(off)) {
            return by_value;
        }
        self.denied_switch(option)
    }

    fn denied_switch(&self, option: &ConfigOption<'_>) -> Option<&'a str> {
        let by_name = || self.denied.find(option.name.as_deref()?);
        let by_id = || self.denied.find(&option.id).or_else(by_name);
        (!option.is_other).then(by_id)?
    }
}

/// A mode, an option or a value that the agent did not offer, with those that it offers.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent does not offer this {kind}. It offers: {}", .offered.join(", "))]
pub struct NotOffered {
    kind: &'static str,
    offered: Vec<String>,
}

impl NotOffered {
    /// The longest list in a message. It has the first ones.
    const MAX_LISTED: usize = 32;

    pub fn is_option(&self) -> bool {
        self.kind == "option"
    }

    fn new<'n>(kind: &'static str, offered: impl Iterator<Item = &'n str>) -> Self {
        let offered = offered.take(Self::MAX_LISTED).map(strip_controls);
        Self {
            kind,
            offered: offered.map(String::from).collect(),
        }
    }
}

#[derive(Debug)]
struct Named<'a> {
    id: Cow<'a, str>,
    name: Option<Cow<'a, str>>,
}

impl<'a> Named<'a> {
    fn parse(raw: &'a RawValue, id: &str) -> Option<Self> {
        let object = RawObject::parse(raw)?;
        Some(Self {
            id: object.text(id)?,
            name: object.text("name"),
        })
    }
}

#[derive(Debug, Default)]
struct ConfigOption<'a> {
    id: Cow<'a, str>,
    name: Option<Cow<'a, str>>,
    /// Whether its category is one of [`OTHER_CATEGORIES`].
    is_other: bool,
    is_switch: bool,
    now: Option<&'a RawValue>,
    values: Vec<Named<'a>>,
}

impl<'a> ConfigOption<'a> {
    /// An option that the agent has not reported.
    fn unknown(id: &'a str) -> Self {
        Self {
            id: id.into(),
            ..Self::default()
        }
    }

    fn parse(raw: &'a RawValue) -> Option<Self> {
        let object = RawObject::parse(raw)?;
        let id = object.text("id").or_else(|| object.text("configId"))?;
        let values = elements(object.get("options")).into_iter();
        let values = values.flat_map(|value| {
            // A group has options of its own.
            let group = RawObject::parse(value).and_then(|group| group.get("options"));
            group.map_or_else(|| vec![value], |group| elements(Some(group)))
        });
        let values = values.filter_map(|value| Named::parse(value, "value"));
        let category = object.text("category").unwrap_or_default();
        Some(Self {
            id,
            name: object.text("name"),
            is_other: OTHER_CATEGORIES.contains(&&*category),
            is_switch: object.text("type").as_deref() == Some("boolean"),
            now: object.get("currentValue"),
            values: values.collect(),
        })
    }
}

fn named_modes(modes: Option<&RawValue>) -> impl Iterator<Item = Named<'_>> {
    let modes = modes.and_then(RawObject::parse);
    let listed = elements(modes.and_then(|modes| modes.get("availableModes")));
    listed
        .into_iter()
        .filter_map(|mode| Named::parse(mode, "id"))
}

fn options(config_options: Option<&RawValue>) -> impl Iterator<Item = ConfigOption<'_>> {
    let options = elements(config_options).into_iter();
    options.filter_map(ConfigOption::parse)
}

/// Returns the entry that equals a string in the value, at any depth, also a member's name.
pub fn find_in_value<'d>(denied: &'d DeniedModes, value: &RawValue) -> Option<&'d str> {
    if denied.is_empty() {
        return None;
    }
    let mut rest = value.get();
    while let Some(start) = rest.find('"') {
        let literal = &rest[start..];
        let end = string_end(literal.as_bytes(), 1);
        if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(&literal[..end])
            && let Some(entry) = denied.find(&text)
        {
            return Some(entry);
        }
        rest = &literal[end..];
    }
    None
}

/// The effect of a slash command on the mode.
#[derive(Debug, PartialEq, Eq)]
pub enum ModeCommand<'d> {
    Denied(&'d str),
    Changes { name: String },
}

/// Returns the slash command in a prompt that changes the mode. Agents read a command at the start of a text block, and
/// some agents join the blocks first.
pub fn find_mode_command<'d>(
    denied: &'d DeniedModes,
    blocks: &[RawObject<'_>],
) -> Option<ModeCommand<'d>> {
    let texts = blocks.iter().filter_map(|block| block.get("text"));
    let texts: Vec<&RawValue> = texts.collect();
    let starts = (0..texts.len()).filter(|at| may_be_command(texts[*at].get()));
    let mut found = None;
    for at in starts {
        let decoded = texts[at..].iter().map_while(|text| text_of(text).ok());
        let joined: String = decoded.clone().collect();
        for text in [decoded.clone().next().unwrap_or_default(), joined.into()] {
            match mode_command(denied, &text) {
                Some(denied @ ModeCommand::Denied(_)) => return Some(denied),
                command => found = found.or(command),
            }
        }
    }
    found
}

/// Whether a string literal may begin with a slash after white space. Other texts are not decoded.
fn may_be_command(literal: &str) -> bool {
    let mut rest = literal.strip_prefix('"').unwrap_or(literal);
    loop {
        rest = rest.trim_start_matches(is_blank);
        match rest.as_bytes() {
            [b'\\', b'n' | b't' | b'r' | b'f' | b'b', ..] => rest = &rest[2..],
            // Any escaped character may be white space or a slash.
            [b'/', ..] | [b'\\', b'/' | b'u', ..] => return true,
            _ => return false,
        }
    }
}

fn is_blank(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2060}')
}

fn mode_command<'d>(denied: &'d DeniedModes, text: &str) -> Option<ModeCommand<'d>> {
    let command = text.trim_matches(is_blank).strip_prefix('/')?;
    let command = command.trim_start_matches(|c| c == '/' || is_blank(c));
    let (name, arguments) = command.split_once(is_blank).unwrap_or((command, ""));
    if let Some(entry) = denied.find(name) {
        return Some(ModeCommand::Denied(entry));
    }
    if !is_mode_command(name) {
        return None;
    }
    Some(match denied.find_in(arguments) {
        Some(entry) => ModeCommand::Denied(entry),
        None => ModeCommand::Changes {
            name: name.to_owned(),
        },
    })
}

#[cfg(test)]
mod tests;
