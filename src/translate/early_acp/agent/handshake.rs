//! The exchange `initialize`: the params for the agent, and its answer as an answer of ACP.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::variation::{Names, Opening};
use crate::acp::AcpVersion;
use crate::translate::early_acp::names::{self, member};
use crate::translate::members::Members;
use crate::translate::message::to_raw;
use crate::translate::object::{LineError, Object};

/// The names of prompt capabilities, with their names in a list `promptTypes`.
const PROMPT_TYPES: [(&str, &[&str]); 3] = [
    ("image", &["image", "images"]),
    ("audio", &["audio"]),
    (
        "embeddedContext",
        &[
            "embeddedContext",
            "embedded_context",
            "resource",
            "resources",
        ],
    ),
];

/// The params for the agent. They contain the members of early agents and those of ACP. `params` are those of ACP.
pub(super) fn initialize(opening: Opening, params: &RawValue) -> Result<Box<RawValue>, LineError> {
    let params = Object::parse("params", params)?;
    let version = match opening {
        Opening::Text => to_raw(&names::PROTOCOL_VERSION),
        Opening::Number => to_raw(&AcpVersion::V1.number()),
    };
    let offered = params.required_object("clientCapabilities")?;
    let files = offered.object("fs");
    // Some agents read these members without `fs`.
    let flat = ["readTextFile", "writeTextFile"];
    let flat = flat
        .iter()
        .filter_map(|name| Some((*name, files.as_ref()?.get(name)?)));
    let capabilities: Members<'_> = offered.iter().chain(flat).collect();
    let mut members: Members<'_> = params.iter().collect();
    members.set(member::PROTOCOL_VERSION, version);
    members.set("clientCapabilities", to_raw(&capabilities));
    members.set("capabilities", to_raw(&Members::default()));
    Ok(to_raw(&members))
}

/// The answer of the agent as an answer of ACP, with the names of its methods.
pub(super) fn answer(result: &RawValue) -> Result<(Names, Box<RawValue>), LineError> {
    let result = Object::parse("initialize", result)?;
    let version = result.required(member::PROTOCOL_VERSION)?;
    let major = major_version(version).ok_or(LineError::Member {
        object: "initialize",
        member: member::PROTOCOL_VERSION,
    })?;
    let capabilities = result.object("agentCapabilities");
    // An agent can repeat the version of the request, so a text alone does not decide.
    let is_early = version.get().starts_with('"') && capabilities.is_none();
    let names = if is_early {
        Names::Early
    } else {
        Names::Modern
    };
    let mut answer = Members::default();
    answer.set(member::PROTOCOL_VERSION, to_raw(&major));
    let info = ["agentInfo", member::SERVER_INFO]
        .into_iter()
        .find_map(|name| result.get(name));
    if let Some(info) = info {
        answer.set("agentInfo", info.to_owned());
    }
    // The methods of early names can do nothing beyond a text prompt.
    let capabilities = capabilities.as_ref().filter(|_| names == Names::Modern);
    answer.set(
        "agentCapabilities",
        capabilities.map_or_else(|| to_raw(&Members::default()), capabilities_of),
    );
    if let Some(methods) = result.get("authMethods") {
        answer.set("authMethods", methods.to_owned());
    }
    Ok((names, to_raw(&answer)))
}

/// The major version. Early agents write 1, "1.0", or a version before it.
fn major_version(version: &RawValue) -> Option<u64> {
    let text: Cow<'_, str> = match serde_json::from_str::<String>(version.get()) {
        Ok(text) => text.into(),
        Err(_) => version.get().into(),
    };
    let major: u64 = text.split('.').next()?.trim().parse().ok()?;
    Some(major.max(AcpVersion::V1.number()))
}

/// The capabilities with the names of ACP. A process has one session, so the agent cannot close or fork it.
fn capabilities_of(capabilities: &Object<'_>) -> Box<RawValue> {
    let mut members = Members::default();
    for (name, value) in capabilities.iter() {
        match name {
            "promptTypes" if capabilities.get("promptCapabilities").is_none() => {
                members.set("promptCapabilities", prompt_types(value));
            }
            "mcp" if capabilities.get("mcpCapabilities").is_none() => {
                members.set("mcpCapabilities", value.to_owned());
            }
            "sessionCapabilities" => {
                let kept = Object::parse("sessionCapabilities", value).ok();
                let kept: Members<'_> = kept
                    .iter()
                    .flat_map(Object::iter)
                    .filter(|(name, _)| !matches!(*name, "close" | "fork"))
                    .collect();
                members.set(name, to_raw(&kept));
            }
            _ => members.set(name, value.to_owned()),
        }
    }
    to_raw(&members)
}

/// `promptTypes` are flags, or a list of names.
fn prompt_types(types: &RawValue) -> Box<RawValue> {
    let Ok(listed) = serde_json::from_str::<Vec<String>>(types.get()) else {
        return types.to_owned();
    };
    let mut flags = Members::default();
    for (name, spellings) in PROMPT_TYPES {
        let has = listed.iter().any(|listed| spellings.contains(&&**listed));
        flags.set(name, to_raw(&has));
    }
    to_raw(&flags)
}
