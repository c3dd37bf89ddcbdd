//! Conversions for v2: the options of a session with its mode among them, the commands, and the sign-in methods.

use agent_client_protocol_schema::v1;
use agent_client_protocol_schema::v2::{
    AuthMethod, AuthMethodAgent, AuthMethodTerminal, AvailableCommand, AvailableCommandInput,
    Command as NamedCommand, ConfigOptionUpdate, EnvVariable, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelectOptions, SessionUpdate, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, TextCommandInput,
};
use serde_json::value::RawValue;

use super::super::agent::{Agent, parse};
use super::super::commands;
use super::super::options::{Choice as _, Mode, select_values};
use super::super::record::Record;
use super::super::turn::{Step, Turn};
use super::updates::{convert, session_id_v1};

/// The option for the session's mode.
const MODE: &str = "mode";

/// The complete list. v2 has no separate modes.
pub(super) fn options(record: &Record) -> Vec<SessionConfigOption> {
    let values: SessionConfigSelectOptions = convert(&select_values::<Mode>());
    let mode = SessionConfigOption::select(MODE, "Mode", record.mode.id(), values)
        .description("The actions that the demo may do without asking".to_owned())
        .category(SessionConfigOptionCategory::Mode);
    let others = record.options.list(true);
    std::iter::once(mode).chain(others.iter().map(option)).collect()
}

fn option(option: &v1::SessionConfigOption) -> SessionConfigOption {
    let id = option.id.to_string();
    let made = match &option.kind {
        v1::SessionConfigKind::Select(select) => {
            let values: SessionConfigSelectOptions = convert(&select.options);
            SessionConfigOption::select(id, option.name.clone(), select.current_value.to_string(), values)
        }
        v1::SessionConfigKind::Boolean(boolean) => {
            SessionConfigOption::boolean(id, option.name.clone(), boolean.current_value)
        }
        _ => convert(option),
    };
    made.description(option.description.clone())
}

pub(super) fn available() -> Vec<AvailableCommand> {
    let command = |command: v1::AvailableCommand| {
        let hint = match command.input {
            Some(v1::AvailableCommandInput::Unstructured(input)) => Some(input.hint),
            _ => None,
        };
        let input = hint.map(|hint| AvailableCommandInput::Text(TextCommandInput::new(hint)));
        AvailableCommand::Command(NamedCommand::new(command.name, command.description).input(input))
    };
    commands::available().into_iter().map(command).collect()
}

pub(super) fn auth_methods(methods: Vec<v1::AuthMethod>) -> Vec<AuthMethod> {
    methods
        .into_iter()
        .filter_map(|method| match method {
            v1::AuthMethod::Agent(method) => Some(AuthMethod::Agent(
                AuthMethodAgent::new(method.id.to_string(), method.name).description(method.description),
            )),
            v1::AuthMethod::Terminal(method) => {
                let env = method.env.into_iter().map(|(name, value)| EnvVariable::new(name, value)).collect();
                Some(AuthMethod::Terminal(
                    AuthMethodTerminal::new(method.id.to_string(), method.name)
                        .args(method.args)
                        .env(env)
                        .description(method.description),
                ))
            }
            _ => None,
        })
        .collect()
}

impl Agent {
    pub(super) fn set_option_v2(
        &self,
        params: &RawValue,
    ) -> Result<SetSessionConfigOptionResponse, v1::Error> {
        let request: SetSessionConfigOptionRequest = parse(params)?;
        let session = self.sessions.get(&session_id_v1(&request.session_id))?;
        let (id, on) = (request.value.as_id().map(|id| &*id.0), request.value.as_bool());
        let mut draft = session.record().clone();
        if &*request.config_id.0 == MODE {
            let wrong = || v1::Error::invalid_params().data("the option has no such value");
            draft.mode = id.and_then(Mode::from_id).ok_or_else(wrong)?;
        } else {
            draft.options.set(&request.config_id.0, id, on)?;
        }
        session.change(|record| {
            record.mode = draft.mode;
            record.options = draft.options;
        })?;
        Ok(SetSessionConfigOptionResponse::new(options(&draft)))
    }
}

impl Turn {
    /// Sends the complete list of options after the agent itself changed one.
    pub(in super::super) async fn send_options(&mut self) -> Step {
        self.step()?;
        let update = ConfigOptionUpdate::new(options(&self.record()));
        self.send_v2(SessionUpdate::ConfigOptionUpdate(update)).await;
        Ok(())
    }
}
