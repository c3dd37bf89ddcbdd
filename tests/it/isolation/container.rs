//! The mechanism of a gateway under the restrictions of `compose.yaml` and `compose.isolation.yaml`, without an engine.

use rustix::process::geteuid;
use serde_json::{Value, json};

use super::attacks::expected_mechanism;
use super::ground::{Machine, NOBODY, User, open, outside_tmp, script, start};
use crate::container::compose;
use crate::support::Setup;
use crate::support::places::project;

/// The mounts of a container: `$1` is the only folder that can be written to besides /tmp, and `$2` selects whether the
/// engine covers parts of /proc.
const MOUNTS: &str = r#"set -e
mount --make-rprivate /
mount --bind "$1" "$1"
case "$3" in /tmp/*) mount --bind "$3" /mnt ;; esac
mount -t tmpfs -o exec,nosuid,nodev,mode=1777,size=1g tmpfs /tmp
case "$3" in /tmp/*) mkdir -p "$3"; mount --move /mnt "$3" ;; esac
if [ "$2" = covered ]; then
  for file in /proc/interrupts /proc/kcore /proc/keys /proc/timer_list; do
    if [ -e "$file" ]; then mount --bind /dev/null "$file"; fi
  done
  for folder in /proc/bus /proc/fs /proc/irq /proc/sys; do
    if [ -e "$folder" ]; then mount --bind "$folder" "$folder"; mount -o remount,bind,ro "$folder"; fi
  done
fi
mount -o remount,bind,ro /
shift 3
exec "$@""#;

/// Whether the service has this security option.
fn has_option(service: &Value, option: &str) -> bool {
    service["security_opt"]
        .as_array()
        .expect("options")
        .contains(&json!(option))
}

/// The program that becomes the gateway, under the restrictions of a service. It cannot simulate `AppArmor`.
fn restricted_by(service: &Value) -> Vec<String> {
    assert_eq!(service["read_only"], true);
    assert_eq!(service["cap_drop"], json!(["ALL"]));
    assert!(has_option(service, "no-new-privileges:true"));
    let user = NOBODY.to_string();
    let proc = if has_option(service, "systempaths=unconfined") {
        "whole"
    } else {
        "covered"
    };
    let folder = outside_tmp().to_str().expect("UTF-8");
    let mut words = vec![
        "unshare",
        "--mount",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ];
    let project = project().to_str().expect("UTF-8");
    words.extend(["sh", "-c", MOUNTS, "container", folder, proc, project]);
    // The change of the user clears the signal of `--kill-child`.
    words.extend([
        "setpriv",
        "--pdeathsig",
        "KILL",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
    ]);
    words.push("--no-new-privs");
    words.extend([
        "--bounding-set",
        "-all",
        "--inh-caps",
        "-all",
        "--ambient-caps",
        "-all",
    ]);
    let filter = script("limited_machine.py");
    if !has_option(service, "seccomp=unconfined") {
        // The default profile denies new user namespaces to a process without capabilities.
        words.extend(["python3", &filter, "namespaces"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

/// The mechanism that a session of the service reports.
async fn mechanism(service: &Value) -> String {
    let words = restricted_by(service);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let setup = Setup::default().run_by(&words).below(outside_tmp());
    let required = service["environment"]["ACP_GATEWAY__ISOLATION__REQUIRED"] == "true";
    let setup = setup.settings(&format!("isolation.required = {required}"));
    let setup = setup.agent(
        "hostile",
        &script("hostile.py"),
        &[],
        "isolation = \"private\"",
    );
    let gateway = start(setup, User::Unprivileged);
    let session = open(&gateway, &json!({ "agent": "hostile" })).await;
    session.json["isolation"]["mechanism"]
        .as_str()
        .expect("a mechanism")
        .to_owned()
}

#[tokio::test]
async fn compose_isolates_with_landlock_and_its_variant_with_namespaces() {
    if !geteuid().is_root() {
        eprintln!("this test needs root");
        return;
    }
    if !User::Unprivileged.can_run() {
        return;
    }
    let landlock = expected_mechanism(User::Unprivileged, "private", Machine::LandlockOnly);
    assert_eq!(mechanism(&compose(&["compose.yaml"])).await, landlock);
    let variant = compose(&["compose.yaml", "compose.isolation.yaml"]);
    assert_eq!(mechanism(&variant).await, "namespaces");
    // The variant needs each of these options.
    for option in ["seccomp=unconfined", "systempaths=unconfined"] {
        let mut without = variant.clone();
        without["security_opt"]
            .as_array_mut()
            .expect("options")
            .retain(|one| one != option);
        without["environment"]["ACP_GATEWAY__ISOLATION__REQUIRED"] = json!("false");
        assert_eq!(mechanism(&without).await, landlock, "without {option}");
    }
}
