//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use super::raw::Answers;

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate flag on the command line"
)]
pub(crate) struct Flags {
    pub(crate) no_load: bool,
    pub(crate) resume: bool,
    pub(crate) resume_any: bool,
    pub(crate) close: bool,
    pub(crate) list: bool,
    pub(crate) delete: bool,
    pub(crate) fork: bool,
    pub(crate) models: bool,
    pub(crate) mcp: bool,
    pub(crate) directories: bool,
    pub(crate) break_load: bool,
    pub(crate) stall_load: bool,
    pub(crate) fail_load: bool,
    pub(crate) fail_resume: bool,
    pub(crate) lock: bool,
    pub(crate) false_load: bool,
    pub(crate) late_history: bool,
    pub(crate) no_methods: bool,
    /// The file with the number of restores to refuse.
    pub(crate) refuse_restore: Option<PathBuf>,
    pub(crate) refusal: Option<String>,
    /// Holds how many times `session/load` needs a sign-in.
    pub(crate) auth_at_load: Option<PathBuf>,
    pub(crate) hang_initialize: bool,
    pub(crate) hang_new: bool,
    pub(crate) hang_load: bool,
    pub(crate) exit_at_start: Option<u8>,
    pub(crate) noise_at_start: bool,
    pub(crate) plain_lines: usize,
    pub(crate) slow_start: Duration,
    pub(crate) exclusive_start: Option<Duration>,
    pub(crate) short_life: Option<Duration>,
    pub(crate) slow_auth: Duration,
    pub(crate) no_capabilities: bool,
    pub(crate) media: bool,
    pub(crate) protocol: Option<u16>,
    pub(crate) v2: bool,
    pub(crate) refuse_version: Option<i64>,
    pub(crate) auth_required: bool,
    /// Sessions open without a sign-in, but prompts require one.
    pub(crate) auth_at_prompt: bool,
    /// Overrides the default `authMethods`.
    pub(crate) auth_methods: Option<String>,
    pub(crate) ask_at_new: bool,
    /// The file that stores a sign-in. `None` keeps it only in the process.
    pub(crate) auth_file: Option<PathBuf>,
    pub(crate) auth_status: bool,
    pub(crate) auth_once: bool,
    pub(crate) logout: bool,
    /// Runs the agent's sign-in in a terminal.
    pub(crate) sign_in: bool,
    pub(crate) early_updates: bool,
    pub(crate) collide_ids: bool,
    pub(crate) zero_ids: bool,
    pub(crate) string_ids: bool,
    pub(crate) ignore_eof: bool,
    pub(crate) ignore_term: bool,
    pub(crate) log: Option<PathBuf>,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) answers: Answers,
}

impl Flags {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut flags = Self::default();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--exit-at-start" => flags.exit_at_start = Some(number(&value()?)?),
                "--plain-lines" => flags.plain_lines = number(&value()?)?,
                "--slow-start" => flags.slow_start = Duration::from_millis(number(&value()?)?),
                "--exclusive-start" => {
                    flags.exclusive_start = Some(Duration::from_millis(number(&value()?)?));
                }
                "--short-life" => {
                    flags.short_life = Some(Duration::from_millis(number(&value()?)?));
                }
                "--slow-auth" => flags.slow_auth = Duration::from_millis(number(&value()?)?),
                "--protocol" => flags.protocol = Some(number(&value()?)?),
                "--auth-methods" => flags.auth_methods = Some(value()?),
                "--auth-file" => flags.auth_file = Some(value()?.into()),
                "--refuse-version" => flags.refuse_version = Some(number(&value()?)?),
                "--refuse-restore" => flags.refuse_restore = Some(value()?.into()),
                "--refusal" => flags.refusal = Some(value()?),
                "--auth-at-load" => flags.auth_at_load = Some(value()?.into()),
                "--log" => flags.log = Some(value()?.into()),
                "--journal" => flags.journal = Some(value()?.into()),
                "--answers" => flags.answers = Answers::read(value()?.as_ref())?,
                "--state" => flags.state = Some(value()?.into()),
                other => {
                    *flags
                        .switch(other)
                        .ok_or_else(|| format!("unknown flag {other}"))? = true;
                }
            }
        }
        Ok(flags)
    }

    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "--no-load" => &mut self.no_load,
            "--resume" => &mut self.resume,
            "--resume-any" => &mut self.resume_any,
            "--close" => &mut self.close,
            "--list" => &mut self.list,
            "--delete" => &mut self.delete,
            "--fork" => &mut self.fork,
            "--models" => &mut self.models,
            "--mcp" => &mut self.mcp,
            "--directories" => &mut self.directories,
            "--stall-load" => &mut self.stall_load,
            "--break-load" => &mut self.break_load,
            "--fail-load" => &mut self.fail_load,
            "--fail-resume" => &mut self.fail_resume,
            "--lock" => &mut self.lock,
            "--false-load" => &mut self.false_load,
            "--late-history" => &mut self.late_history,
            "--no-methods" => &mut self.no_methods,
            "--hang-initialize" => &mut self.hang_initialize,
            "--hang-new" => &mut self.hang_new,
            "--hang-load" => &mut self.hang_load,
            "--noise-at-start" => &mut self.noise_at_start,
            "--media" => &mut self.media,
            "--v2" => &mut self.v2,
            "--no-capabilities" => &mut self.no_capabilities,
            "--auth-required" => &mut self.auth_required,
            "--auth-at-prompt" => &mut self.auth_at_prompt,
            "--auth-once" => &mut self.auth_once,
            "--ask-at-new" => &mut self.ask_at_new,
            "--auth-status" => &mut self.auth_status,
            "--logout" => &mut self.logout,
            "login" => &mut self.sign_in,
            "--early-updates" => &mut self.early_updates,
            "--collide-ids" => &mut self.collide_ids,
            "--zero-ids" => &mut self.zero_ids,
            "--string-ids" => &mut self.string_ids,
            "--ignore-eof" => &mut self.ignore_eof,
            "--ignore-term" => &mut self.ignore_term,
            _ => return None,
        })
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{text} is not a number that fits"))
}
