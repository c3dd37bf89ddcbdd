//! The configuration file that no option names: its places, and the files that are not trusted.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use super::{Gateway, folder, stderr, stdout};
use crate::support::places::gateway_program;

const SHARED: &str = "/etc/acp-gateway/acp-gateway.toml";

/// A person in a folder, with a home and a data folder.
struct Person {
    _folder: TempDir,
    here: PathBuf,
    home: PathBuf,
    data: PathBuf,
}

impl Person {
    fn new() -> Self {
        let folder = folder();
        let path = folder.path().canonicalize().unwrap();
        let [here, home, data] = ["here", "home", "data"].map(|name| path.join(name));
        fs::create_dir(&here).unwrap();
        fs::create_dir(&home).unwrap();
        Self {
            _folder: folder,
            here,
            home,
            data,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a test drives the real program")]
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(gateway_program());
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("ACP_GATEWAY_DATA", &self.data)
            .current_dir(&self.here)
            .stdin(Stdio::null())
            .args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts a gateway and stops it. Returns its log.
    fn log_of_a_start(&self, args: &[&str]) -> String {
        let log = self.home.join("log");
        let mut serve = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        serve
            .args(args)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap());
        let mut child = serve.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let mut gateway = Gateway { child, line };
        gateway.signal(Signal::TERM);
        let code = gateway.exit();
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(code, Some(0), "{log}");
        log
    }

    fn own_file(&self) -> PathBuf {
        self.here.join("acp-gateway.toml")
    }
}

/// Writes a file with this port.
fn write(path: &Path, port: u16) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("[server]\nlisten = \"127.0.0.1:{port}\"\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
}

fn reads(output: &Output, path: &Path, port: u16) {
    let path = path.display();
    let shown = stdout(output);
    assert!(
        shown.starts_with(&format!("# Configuration file: {path}\n"))
            && shown.contains(&format!("listen = \"127.0.0.1:{port}\"  # {path}:2\n")),
        "{shown}{}",
        stderr(output)
    );
}

#[test]
fn first_configuration_file_of_the_usual_places_is_read() {
    let person = Person::new();
    let check = |variables: &[(&str, &Path)], args: &[&str]| {
        let mut command = person.command(&[&["check"], args].concat());
        command.envs(variables.iter().copied()).output().unwrap()
    };
    let of_user = person.home.join(".config/acp-gateway/acp-gateway.toml");
    write(&of_user, 1);
    reads(&check(&[], &[]), &of_user, 1);
    let settings = person.home.join("settings");
    let of_settings = settings.join("acp-gateway/acp-gateway.toml");
    write(&of_settings, 2);
    let variable = ("XDG_CONFIG_HOME", &*settings);
    reads(&check(&[variable], &[]), &of_settings, 2);
    let own = person.own_file();
    write(&own, 3);
    reads(&check(&[variable], &[]), &own, 3);
    let named = person.home.join("named.toml");
    write(&named, 4);
    let named_by_variable = ("ACP_GATEWAY_CONFIG", &*named);
    reads(&check(&[named_by_variable], &[]), &named, 4);
    let flag = person.home.join("flag.toml");
    write(&flag, 5);
    let args = ["--config", flag.to_str().unwrap()];
    reads(&check(&[named_by_variable], &args), &flag, 5);
    // Other commands read the same file.
    let health = person.run(&["healthcheck"]);
    assert!(
        stderr(&health).starts_with("acp-gateway: no response from 127.0.0.1:3: "),
        "{}",
        stderr(&health)
    );
}

#[test]
fn without_a_file_the_places_are_shown() {
    // The tests do not read a file of the machine.
    if Path::new(SHARED).exists() {
        return;
    }
    let person = Person::new();
    let shown = person.run(&["check"]);
    let expected = format!(
        "# Configuration file: none; searched {}, {}, {SHARED}\n",
        person.own_file().display(),
        person
            .home
            .join(".config/acp-gateway/acp-gateway.toml")
            .display()
    );
    assert!(stdout(&shown).starts_with(&expected), "{}", stdout(&shown));

    let log = person.log_of_a_start(&[]);
    assert!(log.contains("\"config\":\"no file\""), "{log}");
}

#[test]
fn file_that_other_users_can_change_is_read_only_if_it_is_named() {
    let person = Person::new();
    let file = person.own_file();
    write(&file, 1);
    let rejected = |reason: &str| {
        for args in [
            &["check"][..],
            &["key", "list"],
            &["healthcheck"],
            &["link"],
            &["serve"],
            &["agent", "list"],
        ] {
            let output = person.run(args);
            let text = stderr(&output);
            assert_eq!(
                (output.status.code(), stdout(&output)),
                (Some(1), ""),
                "{args:?}: {text}"
            );
            assert!(
                text.starts_with(&format!("acp-gateway: {}: ", file.display()))
                    && text.contains(reason)
                    && text.contains("--config"),
                "{args:?}: {text}"
            );
        }
        let named = person.run(&["check", "--config", file.to_str().unwrap()]);
        reads(&named, &file, 1);
    };
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    rejected(&format!(
        "other users can write it: run `chmod go-w {}`",
        file.display()
    ));
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    reads(&person.run(&["check"]), &file, 1);
    // Only root can give a file away.
    if geteuid().is_root() {
        chown(&file, Some(65534), None).unwrap();
        rejected("it belongs to the user with the id 65534");
    }
}

/// Otherwise an agent could add a command for the next start, which would run without its isolation.
#[test]
fn file_in_a_folder_of_sessions_is_read_only_if_it_is_named() {
    let person = Person::new();
    let file = person.own_file();
    write(&file, 1);
    for workspace in [".", ".."] {
        let output = person.run(&["check", "--workspace", workspace]);
        let text = stderr(&output);
        assert!(
            output.status.code() == Some(1) && text.contains("agents can change it"),
            "{text}"
        );
    }
    let args = ["check", "--workspace", ".", "--config", "acp-gateway.toml"];
    reads(&person.run(&args), Path::new("acp-gateway.toml"), 1);
    fs::create_dir(person.here.join("project")).unwrap();
    reads(&person.run(&["check", "--workspace", "project"]), &file, 1);
}

/// An editor starts `attach` in the folder of a project, whose files agents and strangers write.
#[test]
fn attach_and_its_gateway_read_no_file_of_the_current_folder() {
    let person = Person::new();
    fs::write(person.own_file(), "not TOML").unwrap();
    let refused = person.run(&["check"]);
    assert!(
        stderr(&refused).contains("acp-gateway.toml:1"),
        "{}",
        stderr(&refused)
    );
    let sign_in = person.run(&["attach", "sign-in", "--method", "shell"]);
    let text = stderr(&sign_in);
    assert!(
        sign_in.status.code() == Some(1) && !text.contains("acp-gateway.toml"),
        "{text}"
    );
    person.log_of_a_start(&["--detached"]);
}
