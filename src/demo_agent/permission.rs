//! Permission for a tool call: by the mode, by an earlier answer, or by a request to the user.

use serde_json::{Value, json};

use super::options::MODE;
use super::turn::{Step, Stop, Turn};
use super::v2;

/// The user's decision about a tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Permission {
    pub(super) granted: bool,
    /// The decision applies to later calls of the same kind.
    pub(super) always: bool,
}

impl Turn {
    /// Announces a tool call. Asks the user, unless the mode or an earlier answer decides.
    pub(super) async fn call_if_permitted(&mut self, call: &Value) -> Step<(String, Permission)> {
        let id = self.call(call).await?;
        let kind = call["kind"].as_str().unwrap_or_default();
        let known = self.record().grants.get(kind).copied();
        let decided = match (self.options().selected(MODE), known) {
            ("auto", _) => Some(true),
            ("plan", _) => Some(false),
            (_, known) => known,
        };
        if let Some(granted) = decided {
            return Ok((
                id,
                Permission {
                    granted,
                    always: false,
                },
            ));
        }
        let permission = self.ask(&id, call).await?;
        if permission.always {
            self.change(|record| record.grants.insert(kind.to_owned(), permission.granted))?;
        }
        Ok((id, permission))
    }

    /// Asks the user in any mode.
    pub(super) async fn ask(&mut self, id: &str, call: &Value) -> Step<Permission> {
        let options = json!([
            { "optionId": "allow_once", "name": "Allow once", "kind": "allow_once" },
            { "optionId": "allow_always", "name": "Always allow in this session", "kind": "allow_always" },
            { "optionId": "reject_once", "name": "Reject", "kind": "reject_once" },
            { "optionId": "reject_always", "name": "Always reject in this session", "kind": "reject_always" },
        ]);
        let mut call = call.clone();
        call["toolCallId"] = json!(id);
        let params = if self.client.is_v2() {
            v2::permission_params(call, &self.record().cwd(), &options)
        } else {
            json!({ "toolCall": call, "options": options })
        };
        // An error of the client does not allow anything.
        let answer = self
            .request("session/request_permission", params)
            .await?
            .unwrap_or_default();
        let outcome = &answer["outcome"];
        if outcome["outcome"] == "cancelled" {
            return Err(Stop::CANCELLED);
        }
        let option = outcome["optionId"].as_str().unwrap_or_default();
        Ok(Permission {
            granted: option.starts_with("allow_"),
            always: option.ends_with("_always"),
        })
    }

    /// The reason for a denial, for the begin of a sentence.
    pub(super) fn denial(&self) -> &'static str {
        if self.options().selected(MODE) == "plan" {
            "This session is in the mode *Plan only*"
        } else {
            "You said no"
        }
    }
}
