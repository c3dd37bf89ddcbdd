//! Folders of sessions that an agent replaces with symbolic links before the next process starts.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::ground::{Machine, Opened, SECRET, User, open, order, outside_tmp, setup, start};
use crate::support::Gateway;

const MACHINES: [Machine; 2] = [Machine::Namespaces, Machine::LandlockOnly];
const LEVELS: [&str; 2] = ["private", "workspace"];

/// The agents whose user can read the private folder outside of the isolation.
fn users() -> impl Iterator<Item = User> {
    User::all()
        .into_iter()
        .filter(|user| user.range().is_none())
}

/// Two sessions. The folder of the second one is below that of the first one.
struct Field {
    gateway: Gateway,
    attacker: Opened,
    second: Opened,
    /// The folder of the second session.
    folder: PathBuf,
    roots: TempDir,
}

impl Field {
    /// `below` is the path of the second folder in the first one. It is the working directory or an additional one.
    async fn new(user: User, machine: Machine, level: &str, below: &str, additional: bool) -> Self {
        let roots = tempfile::tempdir_in(outside_tmp()).expect("a folder");
        let project = roots.path().join("project");
        let folder = project.join(below);
        std::fs::create_dir_all(&folder).expect("the folder is ours");
        std::fs::create_dir(roots.path().join("other")).expect("the folder is ours");
        user.own(roots.path());
        let command = if level == "strict" {
            "isolation_command = [\"env\"]\n"
        } else {
            ""
        };
        let setup = setup(user, machine, level, command);
        let gateway = start(
            setup.settings(&format!("workspaces.allow = {}", json!([roots.path()]))),
            user,
        );
        let secret = gateway.path("data/private/secret");
        std::fs::write(&secret, SECRET).expect("the folder is ours");
        user.own(&secret);
        let attacker = open(&gateway, &json!({ "agent": "hostile", "cwd": project })).await;
        let body = if additional {
            let cwd = roots.path().join("other");
            json!({ "agent": "sibling", "cwd": cwd, "additionalDirectories": [folder] })
        } else {
            json!({ "agent": "sibling", "cwd": folder })
        };
        let second = open(&gateway, &body).await;
        Self {
            gateway,
            attacker,
            second,
            folder,
            roots,
        }
    }

    /// The first agent replaces a folder with a link.
    async fn replace(&self, path: &Path, target: &Path) {
        let replace = json!({ "act": "replace", "path": path, "target": target });
        order(&self.gateway, &self.attacker, &replace, "replaced.json").await;
    }

    /// Ends the process of the second session.
    async fn restart(&self) {
        let turn = self
            .gateway
            .turn(
                &self.second.id,
                &json!({ "act": "exit", "code": 0 }).to_string(),
            )
            .await;
        assert_eq!(turn["error"]["code"], "agent_exited", "{turn}");
    }

    /// The next process of the second session does not start, and the client learns why. Other sessions do.
    async fn is_refused(&self) {
        let look = json!({ "act": "look", "paths": [self.folder], "cwd": self.second.cwd });
        let turn = self.gateway.turn(&self.second.id, &look.to_string()).await;
        let private = self.gateway.path("data/private");
        assert!(
            !private.join("looked.json").exists(),
            "the agent wrote to the private folder"
        );
        assert_eq!(
            turn["error"]["code"],
            "forbidden",
            "{turn} {:?}",
            seen(&self.second.cwd)
        );
        let names_folder = |problem: &Value| {
            let detail = problem["detail"].as_str().expect("a text");
            assert!(detail.contains("symbolic link"), "{detail}");
            assert!(
                detail.contains(self.folder.to_str().expect("text")),
                "{detail}"
            );
        };
        names_folder(&turn["error"]);
        // More attempts than starts that open the breaker.
        for _ in 0..8 {
            let path = format!("/v1/sessions/{}/attach", self.second.id);
            let (status, problem) = self.gateway.post(&path, &json!({})).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
            names_folder(&problem);
        }
        let cwd = self.roots.path().join("other");
        open(&self.gateway, &json!({ "agent": "sibling", "cwd": cwd })).await;
    }

    /// The session works again with its folder.
    async fn restore(&self, path: &Path) {
        std::fs::remove_file(path).expect("the link");
        let mut moved = path.as_os_str().to_owned();
        moved.push(".moved");
        std::fs::rename(moved, path).expect("the folder");
        let look = json!({ "act": "look", "paths": [self.folder] });
        order(&self.gateway, &self.second, &look, "looked.json").await;
    }
}

/// The output of the agent. `None` if it did not run.
fn seen(cwd: &Path) -> Option<String> {
    std::fs::read_to_string(cwd.join("looked.json")).ok()
}

async fn replaced_at(
    level: &str,
    machine: Machine,
    user: User,
    below: &str,
    replaced: &str,
    target: &str,
) {
    let field = Field::new(user, machine, level, below, false).await;
    let path = field.attacker.cwd.join(replaced);
    field.replace(&path, &field.gateway.path(target)).await;
    field.restart().await;
    field.is_refused().await;
    field.restore(&path).await;
}

#[tokio::test]
async fn working_directory_that_is_replaced_by_a_link_is_refused() {
    for user in users() {
        for machine in MACHINES {
            for level in LEVELS {
                replaced_at(level, machine, user, "sub", "sub", "data/private").await;
            }
        }
    }
}

#[tokio::test]
async fn working_directory_whose_parent_is_replaced_by_a_link_is_refused() {
    for machine in MACHINES {
        for level in LEVELS {
            replaced_at(
                level,
                machine,
                users().last().expect("a user"),
                "a/private",
                "a",
                "data",
            )
            .await;
        }
    }
}

#[tokio::test]
async fn strict_command_does_not_start_in_a_folder_that_is_replaced_by_a_link() {
    replaced_at(
        "strict",
        Machine::Any,
        users().last().expect("a user"),
        "sub",
        "sub",
        "data/private",
    )
    .await;
}

#[tokio::test]
async fn additional_directory_that_is_replaced_by_a_link_is_refused() {
    let user = users().last().expect("a user");
    for machine in MACHINES {
        for level in LEVELS {
            let field = Field::new(user, machine, level, "sub", true).await;
            field
                .replace(&field.folder, &field.gateway.path("data/private"))
                .await;
            field.restart().await;
            field.is_refused().await;
            field.restore(&field.folder).await;
        }
    }
}

#[tokio::test]
async fn terminal_does_not_reach_through_a_folder_that_is_replaced_by_a_link() {
    let user = users().last().expect("a user");
    for machine in MACHINES {
        for level in LEVELS {
            let field = Field::new(user, machine, level, "sub", true).await;
            field
                .replace(&field.folder, &field.gateway.path("data/private"))
                .await;
            // The process of the second session still runs.
            let read = json!({
                "act": "terminal", "command": ["cat", field.folder.join("secret")], "env": [], "named": false,
                "cwd": field.second.cwd,
            });
            let turn = field
                .gateway
                .turn(&field.second.id, &read.to_string())
                .await;
            let written =
                std::fs::read_to_string(field.second.cwd.join("terminal.json")).unwrap_or_default();
            assert!(
                !written.contains(SECRET),
                "{level} with {machine:?}: {written} {turn}"
            );
            assert_eq!(seen(&field.second.cwd), None);
        }
    }
}

#[tokio::test]
async fn folder_of_programs_that_is_replaced_by_a_link_stays_closed() {
    let user = users().last().expect("a user");
    for level in LEVELS {
        let setup = setup(user, Machine::Namespaces, level, "home = \"user\"\n");
        let gateway = setup.start_with(|folder| {
            let programs = folder.join("tools/bin");
            std::fs::create_dir_all(&programs).expect("the folder is ours");
            user.own(folder);
            let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
            vec![("PATH", path.into())]
        });
        let secret = gateway.path("data/private/secret");
        std::fs::write(&secret, SECRET).expect("the folder is ours");
        user.own(&secret);
        let attacker = open(&gateway, &json!({ "agent": "hostile" })).await;
        let programs = gateway.path("tools/bin");
        let private = gateway.path("data/private");
        let replace = json!({ "act": "replace_below", "path": programs, "target": private });
        order(&gateway, &attacker, &replace, "replaced.json").await;
        let second = open(&gateway, &json!({ "agent": "sibling" })).await;
        let look = json!({ "act": "look", "paths": [programs, private] });
        let found = order(&gateway, &second, &look, "looked.json").await;
        assert!(!found.to_string().contains("secret"), "{level}: {found}");
    }
}

#[tokio::test]
async fn folder_that_changes_during_starts_never_leads_to_the_private_folder() {
    const STARTS: usize = 15;
    let user = users().last().expect("a user");
    for machine in MACHINES {
        let field = Field::new(user, machine, "private", "sub", false).await;
        let private = field.gateway.path("data/private");
        let exchange =
            json!({ "act": "exchange", "path": field.folder, "target": private, "seconds": 20 });
        order(&field.gateway, &field.attacker, &exchange, "replaced.json").await;
        let path = |end: &str| format!("/v1/sessions/{}/{end}", field.second.id);
        for _ in 0..STARTS {
            field.gateway.post(&path("close"), &json!({})).await;
            let (status, problem) = field.gateway.post(&path("attach"), &json!({})).await;
            if status != StatusCode::OK {
                // Between both states of the path, nothing is there.
                let is_expected = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&status);
                assert!(is_expected, "{status} {problem}");
                continue;
            }
            let look = json!({ "act": "say", "path": field.folder });
            let said = field
                .gateway
                .turn(&field.second.id, &look.to_string())
                .await;
            let text = said["text"].as_str().unwrap_or_default();
            assert!(!text.contains("secret"), "{machine:?}: {text}");
        }
    }
}

/// With `off`, the supervisor of an agent with its own user is root.
#[tokio::test]
async fn terminal_enters_its_folder_with_the_rights_of_its_user() {
    let Some(user) = User::all().into_iter().find(|user| user.range().is_some()) else {
        eprintln!("this test needs root");
        return;
    };
    for (level, machine) in [("off", Machine::Any), ("private", Machine::LandlockOnly)] {
        let roots = tempfile::tempdir_in(outside_tmp()).expect("a folder");
        let project = roots.path().join("project");
        std::fs::create_dir_all(project.join("sub")).expect("the folder is ours");
        user.own(&project);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(roots.path(), mode).expect("the folder is ours");
        let closed = roots.path().join("closed");
        std::fs::create_dir_all(closed.join("open")).expect("the folder is ours");
        std::fs::write(closed.join("open/secret"), SECRET).expect("the folder is ours");
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&closed, mode).expect("the folder is ours");
        let setup = setup(user, machine, level, "");
        let gateway = start(
            setup.settings(&format!("workspaces.allow = {}", json!([roots.path()]))),
            user,
        );
        let attacker = open(&gateway, &json!({ "agent": "hostile", "cwd": project })).await;
        let second = open(
            &gateway,
            &json!({ "agent": "hostile", "cwd": project.join("sub") }),
        )
        .await;
        let target = closed.join("open");
        let replace = json!({ "act": "replace", "path": second.cwd, "target": target });
        order(&gateway, &attacker, &replace, "replaced.json").await;
        let read = json!({
            "act": "terminal", "command": ["cat", "secret"], "env": [], "named": false, "cwd": attacker.cwd,
        });
        let turn = gateway.turn(&second.id, &read.to_string()).await;
        let written =
            std::fs::read_to_string(attacker.cwd.join("terminal.json")).unwrap_or_default();
        assert!(!written.contains(SECRET), "{level}: {written} {turn}");
    }
}

/// A hidden folder would become visible at its new path.
#[tokio::test]
async fn parent_of_a_hidden_folder_cannot_be_moved() {
    let user = users().last().expect("a user");
    for machine in MACHINES {
        let roots = tempfile::tempdir_in(outside_tmp()).expect("a folder");
        let parent = roots.path().join("parent");
        let root = parent.join("root");
        std::fs::create_dir_all(root.join("other")).expect("the folder is ours");
        std::fs::write(root.join("other/secret"), SECRET).expect("the folder is ours");
        user.own(roots.path());
        let setup = setup(user, machine, "private", "");
        let gateway = start(
            setup.settings(&format!("workspaces.allow = {}", json!([root]))),
            user,
        );
        let attacker = open(&gateway, &json!({ "agent": "hostile" })).await;
        let replace = json!({ "act": "move", "path": parent, "below": root });
        let error = order(&gateway, &attacker, &replace, "moved.json").await;
        let second = open(&gateway, &json!({ "agent": "sibling" })).await;
        let moved = roots.path().join("parent.moved/root/other");
        let look = json!({ "act": "look", "paths": [moved] });
        let found = order(&gateway, &second, &look, "looked.json").await;
        assert!(
            !found.to_string().contains("secret"),
            "{machine:?}: {found}"
        );
        assert!(error.is_string(), "{machine:?}: the parent was moved");
    }
}
