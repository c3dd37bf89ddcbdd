//! The player of the scripts in `scenes.json`.

use std::io::Write as _;
use std::pin::Pin;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};

use super::super::permission::Permission;
use super::super::prompt::Prompt;
use super::super::text::{one_line, quoted};
use super::super::turn::{Step, Stop, Turn};
use super::commands::{Action, SCENES, command_table};

/// The maximum number of characters of the user's message that the answer repeats.
const MAX_QUOTE_CHARS: usize = 120;
/// The exit code of a crash.
const CRASH_CODE: i32 = 42;

/// The state of the script that a turn plays.
pub(super) struct Player<'a> {
    turn: &'a mut Turn,
    prompt: &'a Prompt,
    plan: &'static [String],
    /// The step of the plan that is in progress.
    plan_step: usize,
    call: String,
    permission: Permission,
    /// The number of this play, for ids.
    number: Option<u64>,
}

impl<'a> Player<'a> {
    pub(super) fn new(turn: &'a mut Turn, prompt: &'a Prompt) -> Self {
        let (call, permission) = (String::new(), Permission::default());
        Self {
            turn,
            prompt,
            plan: &[],
            plan_step: 0,
            call,
            permission,
            number: None,
        }
    }

    pub(super) async fn command(&mut self, name: &str) -> Step {
        self.play(
            SCENES
                .command(name)
                .map_or(&[], |command| command.steps.as_slice()),
        )
        .await
    }

    pub(super) async fn part(&mut self, name: &str) -> Step {
        self.play(SCENES.parts.get(name).map_or(&[], Vec::as_slice))
            .await
    }

    pub(super) async fn play(&mut self, script: &'static [Action]) -> Step {
        for action in script {
            self.act(action).await?;
        }
        Ok(())
    }

    /// Boxed, because parts of scripts recur.
    fn act<'b>(
        &'b mut self,
        action: &'static Action,
    ) -> Pin<Box<dyn Future<Output = Step> + Send + 'b>> {
        Box::pin(async move {
            match action {
                Action::Say(text) => {
                    let text = self.fill_text(text);
                    self.turn.say(&text).await
                }
                Action::Think(text) => {
                    let text = self.fill_text(text);
                    self.turn.think(&text).await
                }
                Action::Block(block) => self.turn.say_block(block.clone()).await,
                Action::Late(text) => {
                    let (id, content) = (
                        self.turn.new_message(),
                        json!({ "type": "text", "text": text }),
                    );
                    let update = json!({
                        "sessionUpdate": "agent_message_chunk", "messageId": id, "content": content,
                    });
                    self.turn.late_updates.push(update);
                    self.turn.new_message();
                    Ok(())
                }
                Action::Pause(beats) => self.turn.pause(*beats).await,
                Action::Update(update) => {
                    let update = self.fill(update);
                    self.turn.act(update).await
                }
                Action::Child(update) => {
                    self.turn.pause(1).await?;
                    let (child, update) = (self.placeholder("child"), self.fill(update));
                    self.turn.client.update(&child, update).await;
                    Ok(())
                }
                Action::Plan(steps) => {
                    (self.plan, self.plan_step) = (steps, 0);
                    self.show_plan().await
                }
                Action::Advance => {
                    self.plan_step += 1;
                    self.show_plan().await
                }
                Action::Part(name) => self.part(name).await,
                Action::UnlessShort(name) if self.length() != "short" => self.part(name).await,
                Action::IfLong(name) if self.length() == "long" => self.part(name).await,
                Action::UnlessShort(_) | Action::IfLong(_) => Ok(()),
                Action::Stop(reason) => Err(Stop::Reason(reason)),
                Action::Fail(reason) => Err(Error::internal_error().data(reason.as_str()).into()),
                Action::Crash => self.crash().await,
                tool_step => self.act_on_call(tool_step).await,
            }
        })
    }

    /// Plays a step of a tool call.
    async fn act_on_call(&mut self, action: &'static Action) -> Step {
        match action {
            Action::Call(call) => {
                let call = self.fill(call);
                self.call = self.turn.call(&call).await?;
            }
            Action::Ask(call) => {
                let call = self.fill(call);
                (self.call, self.permission) = self.turn.call_if_permitted(&call).await?;
            }
            Action::AskInAnyMode(call) => {
                self.call = self.turn.call(call).await?;
                self.permission = self.turn.ask(&self.call, call).await?;
            }
            Action::Allowed(script) if self.permission.granted => self.play(script).await?,
            Action::Denied(script) if !self.permission.granted => self.play(script).await?,
            Action::Progress(members) => self.turn.progress(&self.call, members.clone()).await?,
            Action::Done(text) => self.turn.end_call(&self.call, "completed", text).await?,
            Action::Failed(text) => self.turn.end_call(&self.call, "failed", text).await?,
            Action::Simulate {
                command,
                lines,
                beats,
            } => {
                self.turn
                    .simulate(&self.call, command, lines, *beats)
                    .await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn show_plan(&mut self) -> Step {
        let entry = |(at, step): (usize, &String)| {
            let status = match at.cmp(&self.plan_step) {
                std::cmp::Ordering::Less => "completed",
                std::cmp::Ordering::Equal => "in_progress",
                std::cmp::Ordering::Greater => "pending",
            };
            let priority = if at == 0 { "high" } else { "medium" };
            json!({ "content": step, "priority": priority, "status": status })
        };
        let entries: Vec<Value> = self.plan.iter().enumerate().map(entry).collect();
        self.turn
            .act(json!({ "sessionUpdate": "plan", "entries": entries }))
            .await
    }

    async fn crash(&self) -> Step {
        // The output must leave the process before its end.
        self.turn.wait(Duration::from_millis(100)).await?;
        drop(writeln!(std::io::stderr(), "demo agent: ended by /crash"));
        std::process::exit(CRASH_CODE);
    }

    fn length(&self) -> String {
        self.turn.options().selected("length").to_owned()
    }

    /// A value with its placeholders replaced.
    fn fill(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(member, value)| (member.clone(), self.fill(value)))
                .collect(),
            other => other.clone(),
        }
    }

    fn fill_text(&mut self, text: &str) -> String {
        let mut parts = text.split("${");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').unwrap_or((part, ""));
            filled.push_str(&self.placeholder(name));
            filled.push_str(rest);
        }
        filled
    }

    fn placeholder(&mut self, name: &str) -> String {
        match name {
            "acknowledgement" => self.acknowledgement(),
            "child" => {
                let number = self.number();
                format!("{}-child-{number}", self.turn.session().id)
            }
            "commands" => command_table(),
            "cwd" => self.turn.record().cwd(),
            "no" => self.turn.denial().to_owned(),
            "number" => self.number().to_string(),
            "thought" => self.thought(),
            "turns" => self.turn.record().turns.to_string(),
            "validity" if self.permission.always => "for always".to_owned(),
            "validity" => "this once".to_owned(),
            unknown => format!("${{{unknown}}}"),
        }
    }

    fn number(&mut self) -> u64 {
        *self
            .number
            .get_or_insert_with(|| self.turn.record().number())
    }

    fn thought(&self) -> String {
        if self.prompt.text.trim().is_empty() {
            return "The message has no text. I answer with what I can show.".to_owned();
        }
        format!(
            "The user writes “{}”. I have no model to think with, so these thoughts are part of the show: \
             an agent's reasoning streams to the client before its answer.",
            one_line(&self.prompt.text, MAX_QUOTE_CHARS)
        )
    }

    /// Describes the message of the user.
    fn acknowledgement(&self) -> String {
        let attachments = self.prompt.acknowledgement();
        if self.prompt.text.trim().is_empty() || self.prompt.command().is_some() {
            return attachments;
        }
        format!(
            "You wrote {}.\n\n{attachments}",
            quoted(&self.prompt.text, MAX_QUOTE_CHARS)
        )
    }
}
