//! Permission for a tool: by the mode, by an earlier answer, or by a request to the user.

use agent_client_protocol_schema::v1::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse, ToolCallId, ToolCallUpdate, ToolCallUpdateFields,
};

use super::options::Mode;
use super::record::Grant;
use super::turn::{Step, StepError, Turn};
use super::v2;
use super::version::Version;

const METHOD: &str = "session/request_permission";

/// The user's decision about a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    Denied,
}

impl Turn {
    /// Asks the user, unless the mode or an earlier answer decides.
    pub(super) async fn permission(
        &mut self,
        id: &ToolCallId,
        fields: ToolCallUpdateFields,
        grant: Grant,
    ) -> Step<Permission> {
        let known = self.record().grants.get(&grant).copied();
        match (self.mode(), known) {
            (Mode::Auto, _) | (Mode::Ask, Some(true)) => return Ok(Permission::Granted),
            (Mode::Plan, _) | (Mode::Ask, Some(false)) => return Ok(Permission::Denied),
            (Mode::Ask, None) => {}
        }
        let (permission, always) = self.ask(id, fields).await?;
        if always {
            self.change(|record| record.grants.insert(grant, permission == Permission::Granted))?;
        }
        Ok(permission)
    }

    /// Asks the user. Returns the answer and whether it applies to later requests.
    pub(super) async fn ask(
        &mut self,
        id: &ToolCallId,
        fields: ToolCallUpdateFields,
    ) -> Step<(Permission, bool)> {
        let option = |id: &'static str, name: &str, kind| PermissionOption::new(id, name, kind);
        let options = vec![
            option("allow_once", "Allow once", PermissionOptionKind::AllowOnce),
            option("allow_always", "Always allow in this session", PermissionOptionKind::AllowAlways),
            option("reject_once", "Reject", PermissionOptionKind::RejectOnce),
            option("reject_always", "Always reject in this session", PermissionOptionKind::RejectAlways),
        ];
        let question = ToolCallUpdate::new(id.clone(), fields);
        let answer = match self.version() {
            Version::V1 => {
                let params =
                    RequestPermissionRequest::new(self.record().session_id.clone(), question, options);
                self.request::<_, RequestPermissionResponse>(METHOD, params).await?
            }
            Version::V2 => {
                let params = v2::question(&self.record(), question, &options);
                self.request(METHOD, params).await?
            }
        };
        match answer.map(|answer| answer.outcome) {
            Ok(RequestPermissionOutcome::Selected(selected)) => match &*selected.option_id.0 {
                "allow_once" => Ok((Permission::Granted, false)),
                "allow_always" => Ok((Permission::Granted, true)),
                "reject_always" => Ok((Permission::Denied, true)),
                _ => Ok((Permission::Denied, false)),
            },
            Ok(_) => Err(StepError::Cancelled),
            // An error of the client does not allow anything.
            Err(_) => Ok((Permission::Denied, false)),
        }
    }
}
