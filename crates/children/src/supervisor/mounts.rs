//! The file system that an isolated child sees: its own mount namespace, in which foreign folders are empty.
//!
//! An empty, read-only file system covers each hidden folder. The visible folders are then mounted back at their paths
//! from descriptors that were opened before all changes. The kernel locks these mounts in nested user namespaces, so a
//! program cannot remove a mask.
//!
//! A visible parent of a hidden folder that the agent could rename becomes a mount point, which cannot be renamed.
//! Otherwise the next agent would see the hidden folder at its new path.
//!
//! A running child gets a folder with masks already inside: another mount namespace masks the hidden folders in a
//! copy, and the copy is then mounted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{
    Access, CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, access, fstatvfs, open, openat2,
    statvfs,
};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, mount_remount, move_mount, open_tree, unmount,
};

use rustix::process::fchdir;

use super::error::SupervisorError;
use super::mount_check::ExpectedMounts;
use super::restrict::STANDARD_DEVICES;
use super::user::check_folder;
use crate::isolation::{
    AccessModel, Confinement, Readable, replaced_folders, shared_memory, temporary_folders,
};
use crate::mount_table::{Mount, MountTable};
use crate::real_folder::{folder_error, open_or_create, open_real_folder};
use base::types::FolderError;

/// The options of the empty file system for shared memory, with the size that it has in containers.
const SHARED_MEMORY_OPTIONS: &std::ffi::CStr = c"mode=1777,size=64m";

/// The POSIX message queues of the IPC namespace of the gateway, which the child's namespace does not replace.
const MESSAGE_QUEUES: &str = "/dev/mqueue";

/// The folder of pseudo terminals, and the options of its own file system.
const PSEUDO_TERMINALS: (&str, &std::ffi::CStr) =
    ("/dev/pts", c"newinstance,ptmxmode=0666,mode=0620");

/// The folder of devices. Disks and the memory of the machine belong to root, so a root process sees only
/// [`STANDARD_DEVICES`].
const DEVICES: &str = "/dev";
const DEVICE_FOLDERS: [&str; 2] = [PSEUDO_TERMINALS.0, "/dev/shm"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// An empty folder that contains only mount points.
const MASK_OPTIONS: &std::ffi::CStr = c"mode=0755,size=1m";
const MASK_FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// One change of the file system, for the folder that is its key. Parents change before their children.
enum Change {
    Hide,
    /// Mounts the folder that had this path before all changes.
    Show(OwnedFd),
    ShowReadOnly(OwnedFd),
    SharedMemory,
    /// A new file system for pseudo terminals: those of other processes are invisible.
    PseudoTerminals,
    /// Only the standard devices, which were open before all changes.
    Devices(Vec<(&'static str, OwnedFd)>),
}

/// The folder that a running child gets.
enum Base {
    Tree(OwnedFd),
    /// The folder is below this number of mounts. A copy of it would contain its mask.
    Below(usize),
}

#[derive(Debug)]
pub(super) struct Mounts {
    /// The folders that the child does not see, opened before all changes.
    sources: Vec<(PathBuf, OwnedFd)>,
    /// The folders over which an empty file system is mounted.
    masks: Vec<PathBuf>,
    /// The user of the child. `None` if the child runs as the user of this process.
    user: Option<u32>,
    /// Whether the child can write only to the folders of its session.
    read_only: bool,
    hidden: Vec<PathBuf>,
    visible: Vec<PathBuf>,
    /// Further mounts that the child keeps: its folders of programs, and its temporary folder.
    kept: Vec<PathBuf>,
    expected: ExpectedMounts,
    /// The mounts of the child, opened before its `/proc` covers that of this process.
    table: File,
    namespace: OwnedFd,
}

impl Mounts {
    /// Changes the file system of this process. It must have its own mount namespace.
    pub(super) fn apply(confinement: &Confinement) -> Result<Self, SupervisorError> {
        let folder = std::env::current_dir().map_err(SupervisorError::at("working directory"))?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).map_err(SupervisorError::at("mount propagation"))?;
        let table = MountTable::open().map_err(SupervisorError::at("mount table"))?;
        let before = MountTable::read_from(&table).map_err(SupervisorError::at("mount table"))?;
        let own = open("/proc/self/ns/mnt", OFlags::CLOEXEC, Mode::empty());
        let changes = plan(confinement).map_err(SupervisorError::at("folders"))?;
        let mut mounts = Self {
            sources: Vec::new(),
            masks: Vec::new(),
            user: confinement.user,
            read_only: confinement.read_only,
            hidden: confinement.hidden.clone(),
            visible: confinement.visible.clone(),
            kept: {
                let readable = confinement.readable.iter().map(|folder| &folder.path);
                readable.chain(&confinement.temporary).cloned().collect()
            },
            expected: ExpectedMounts::new(confinement, &before),
            table,
            namespace: own.map_err(SupervisorError::at("mount namespace"))?,
        };
        let replaced = replaced_folders(confinement);
        for path in confinement.hidden.iter().cloned().chain(replaced) {
            // A folder that does not exist needs no mask.
            if let Ok(source) = open_folder(&path) {
                mounts.sources.push((path, source));
            }
        }
        for (path, change) in changes {
            let made = mounts.make(&path, change);
            made.map_err(|error| failed(&path, error))?;
        }
        make_read_only(&mounts.expected.model, &mounts.read_table()?)
            .map_err(SupervisorError::at("read-only mounts"))?;
        mounts.close_masks().map_err(SupervisorError::at("masks"))?;
        let checked = mounts.expected.check(&mounts.read_table()?);
        checked.map_err(SupervisorError::at("check of the isolation"))?;
        // The current working directory could lie below a mask.
        std::env::set_current_dir(&folder).map_err(SupervisorError::at("working directory"))?;
        Ok(mounts)
    }

    fn read_table(&self) -> Result<MountTable, SupervisorError> {
        MountTable::read_from(&self.table).map_err(SupervisorError::at("mount table"))
    }

    fn make(&mut self, path: &Path, change: Change) -> io::Result<()> {
        match change {
            Change::Hide => {
                if hide(path)? {
                    self.masks.push(path.to_owned());
                }
                Ok(())
            }
            Change::Show(source) => show(&source, path).map(drop),
            Change::ShowReadOnly(source) => {
                show(&source, path).and_then(|shown| remount(&shown, MountFlags::RDONLY))
            }
            Change::PseudoTerminals => {
                let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
                let options = Some(PSEUDO_TERMINALS.1);
                Ok(mount("devpts", path, "devpts", flags, options)?)
            }
            Change::Devices(devices) => show_devices(path, devices),
            Change::SharedMemory => {
                // The folder can lie below a mask.
                open_or_create(path)?;
                let flags = MASK_FLAGS | MountFlags::NOEXEC;
                let options = Some(SHARED_MEMORY_OPTIONS);
                Ok(mount("tmpfs", path, "tmpfs", flags, options)?)
            }
        }
    }

    /// Shows a folder below a hidden one to the running child. The child can write to the folder.
    pub(super) fn grant(&mut self, folder: &Path) -> io::Result<()> {
        self.show_later(folder)?;
        self.expected.grant(folder);
        self.visible.push(folder.to_owned());
        self.expected.check(&MountTable::read_from(&self.table)?)
    }

    fn show_later(&mut self, folder: &Path) -> io::Result<()> {
        let hidden = self.sources.iter();
        let hidden = hidden.filter(|(path, _)| folder.starts_with(path));
        let Some((path, source)) = hidden.max_by_key(|(path, _)| path.components().count()) else {
            // The child sees it already. A copy keeps the masks of hidden folders below it.
            let opened = open_real_folder(folder)?;
            self.check_user(folder, &opened)?;
            if self.read_only {
                remount(&show(&opened, folder)?, MountFlags::empty())?;
            }
            return Ok(());
        };
        let below = folder.strip_prefix(path).map_err(io::Error::other)?;
        let below = if below.as_os_str().is_empty() {
            Path::new(".")
        } else {
            below
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = openat2(source, below, flags, Mode::empty(), resolve)
            .map_err(|error| folder_error(folder, error))?;
        self.check_user(folder, &opened)?;
        let (tree, masks) = self.without_hidden_folders(&opened, folder)?;
        self.open_masks()?;
        let shown = attach_at(tree, folder);
        self.close_masks()?;
        self.masks.extend(masks);
        // A copy of a read-only mount is read-only.
        remount(&shown?, MountFlags::empty())
    }

    /// A copy of a folder that can be mounted, in which hidden folders below it are masked, and the new masks. The child
    /// never sees the copy without its masks, because they are mounted in another mount namespace.
    fn without_hidden_folders(
        &self,
        opened: &OwnedFd,
        folder: &Path,
    ) -> io::Result<(OwnedFd, Vec<PathBuf>)> {
        let is_below = |path: &PathBuf| path.starts_with(folder) && path != folder;
        let hidden = self.hidden.iter().filter(|path| is_below(path));
        let hidden: Vec<PathBuf> = hidden.cloned().collect();
        let is_masked = self.masks.iter().any(|mask| mask == folder);
        if hidden.is_empty() && !is_masked {
            return Ok((copy_tree(opened)?, Vec::new()));
        }
        let base = if is_masked {
            let mounts = MountTable::read_from(&self.table)?;
            Base::Below(self.expected.added_at(folder, &mounts))
        } else {
            // The other namespace cannot copy mounts of this one.
            Base::Tree(copy_tree(opened)?)
        };
        unshare(CloneFlags::CLONE_NEWNS)?;
        let masked = self.mask_in_copy(base, folder, hidden);
        // Later requests would fail in the other namespace.
        setns(&self.namespace, CloneFlags::CLONE_NEWNS)?;
        masked
    }

    fn mask_in_copy(
        &self,
        base: Base,
        folder: &Path,
        mut hidden: Vec<PathBuf>,
    ) -> io::Result<(OwnedFd, Vec<PathBuf>)> {
        self.open_masks()?;
        // The copy covers them, and they can be below a hidden folder.
        let mut shown: Vec<(PathBuf, OwnedFd)> = Vec::new();
        for path in self.visible.iter().chain(&self.kept) {
            if path.starts_with(folder)
                && path != folder
                && let Ok(opened) = open_real_folder(path)
            {
                shown.push((path.clone(), copy_tree(&opened)?));
            }
        }
        shown.sort_by(|(path, _), (other, _)| path.cmp(other));
        let attached = match base {
            Base::Tree(tree) => attach_at(tree, folder)?,
            Base::Below(mounts) => {
                for _ in 0..mounts {
                    unmount(folder, UnmountFlags::DETACH)?;
                }
                show(&open_real_folder(folder)?, folder)?
            }
        };
        // A copy of a read-only mount is read-only, and its folders would not count as movable.
        remount(&attached, MountFlags::empty())?;
        let granted = [folder.to_owned()];
        let visible: Vec<PathBuf> = self.visible.iter().cloned().chain(granted).collect();
        for parent in movable_parents(&self.hidden, &visible) {
            if parent.starts_with(folder) && parent != folder {
                show(&open_real_folder(&parent)?, &parent)?;
            }
        }
        hidden.sort();
        let mut masks = Vec::new();
        for path in hidden {
            if hide(&path)? {
                masks.push(path);
            }
        }
        for (path, tree) in shown {
            attach_at(tree, &path)?;
        }
        for mask in &masks {
            let flags = MASK_FLAGS | MountFlags::RDONLY | MountFlags::BIND;
            match mount_remount(mask, flags, c"") {
                // A folder of the child covers it.
                Ok(()) | Err(Errno::NOENT | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((copy_tree(&open_real_folder(folder)?)?, masks))
    }

    /// Checks that the user of the child can use a folder.
    fn check_user(&self, folder: &Path, opened: impl AsFd) -> io::Result<()> {
        match self.user {
            Some(user) => check_folder(user, opened, &folder.display()),
            None => Ok(()),
        }
    }

    /// Makes the masks writable for new mount points.
    fn open_masks(&self) -> io::Result<()> {
        self.remount_masks(MASK_FLAGS)
    }

    fn close_masks(&self) -> io::Result<()> {
        self.remount_masks(MASK_FLAGS | MountFlags::RDONLY)
    }

    fn remount_masks(&self, flags: MountFlags) -> io::Result<()> {
        for mask in &self.masks {
            mount_remount(mask, flags | MountFlags::BIND, c"")?;
        }
        Ok(())
    }
}

/// Mounts an empty file system over a hidden folder, and an empty file over a hidden file. Returns whether there is a new
/// mask for mount points.
fn hide(path: &Path) -> io::Result<bool> {
    match mount("tmpfs", path, "tmpfs", MASK_FLAGS, Some(MASK_OPTIONS)) {
        Ok(()) => Ok(true),
        // A mask of a parent hides it already, or the rights of files do.
        Err(Errno::NOENT | Errno::ACCESS) => Ok(false),
        Err(Errno::NOTDIR) if path.is_file() => {
            let empty = open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            attach(&empty, path).map(|()| false)
        }
        Err(error) => Err(error.into()),
    }
}

/// The changes in the order of their paths. All folders are opened before the first change.
fn plan(confinement: &Confinement) -> io::Result<BTreeMap<PathBuf, Change>> {
    let mut changes: BTreeMap<PathBuf, Change> = BTreeMap::new();
    for path in &confinement.hidden {
        changes.insert(path.clone(), Change::Hide);
    }
    if let Some(own) = &confinement.temporary {
        for shared in temporary_folders() {
            changes.insert(shared, Change::Show(open_real_folder(own)?));
        }
        // The list of mounts names this path as the origin of `/tmp`. The sandbox of Codex fails if it does not exist.
        changes.insert(own.clone(), Change::Show(open_real_folder(own)?));
    }
    if let Some(shared) = shared_memory() {
        changes.insert(shared, Change::SharedMemory);
    }
    if Path::new(MESSAGE_QUEUES).is_dir() {
        changes.insert(MESSAGE_QUEUES.into(), Change::Hide);
    }
    for Readable { path, real } in &confinement.readable {
        // A folder that was removed or replaced meanwhile is not shown.
        if let Ok(source) = open_real_folder(real) {
            changes.insert(path.clone(), Change::ShowReadOnly(source));
        }
    }
    if Path::new(PSEUDO_TERMINALS.0).is_dir() {
        changes.insert(PSEUDO_TERMINALS.0.into(), Change::PseudoTerminals);
    }
    if confinement.child_is_root() {
        changes.insert(DEVICES.into(), Change::Devices(open_devices()));
    }
    for path in &confinement.visible {
        changes.insert(path.clone(), Change::Show(open_real_folder(path)?));
    }
    // Nothing of the real parents below the shared folders is visible, so that the child cannot rename them.
    let replaced = replaced_folders(confinement);
    let hidden: Vec<PathBuf> = confinement.hidden.iter().cloned().chain(replaced).collect();
    for path in movable_parents(&hidden, &confinement.visible) {
        if let Entry::Vacant(unchanged) = changes.entry(path) {
            let source = open_real_folder(unchanged.key())?;
            unchanged.insert(Change::Show(source));
        }
    }
    Ok(changes)
}

/// The visible parents of hidden folders that the child could rename. The next child would then see the hidden folder at
/// its new path. A mount point cannot be renamed in its namespace.
fn movable_parents(hidden: &[PathBuf], visible: &[PathBuf]) -> Vec<PathBuf> {
    let depth = |folders: &[PathBuf], path: &Path| {
        let around = folders.iter().filter(|folder| path.starts_with(folder));
        let depths = around.map(|folder| folder.components().count());
        depths.max().unwrap_or(0)
    };
    let is_masked = |path: &Path| depth(hidden, path) > depth(visible, path);
    let is_movable = |path: &Path| {
        let parent = path.parent();
        parent.is_some_and(|parent| access(parent, Access::WRITE_OK).is_ok()) && !is_masked(path)
    };
    let parents = hidden.iter().flat_map(|folder| folder.ancestors().skip(1));
    let movable = parents.filter(|path| path.is_dir() && is_movable(path));
    let mut movable: Vec<PathBuf> = movable.map(Path::to_path_buf).collect();
    movable.sort();
    movable.dedup();
    movable
}

/// Opens a folder that is hidden. Its path can contain links.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Devices that this machine lacks are missing.
fn open_devices() -> Vec<(&'static str, OwnedFd)> {
    let open_device = |name: &'static str| {
        let path = Path::new(DEVICES).join(name);
        let device = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some((name, device))
    };
    STANDARD_DEVICES
        .into_iter()
        .filter_map(open_device)
        .collect()
}

fn show_devices(path: &Path, devices: Vec<(&'static str, OwnedFd)>) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("tmpfs", path, "tmpfs", flags, Some(MASK_OPTIONS))?;
    for (name, device) in devices {
        let point = path.join(name);
        fs::File::create(&point)?;
        attach(&device, &point)?;
    }
    for (name, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, path.join(name))?;
    }
    for folder in DEVICE_FOLDERS {
        DirBuilder::new().mode(0o755).create(folder)?;
    }
    Ok(())
}

/// Changes the flags of a mount through its open root, because its path could now resolve to another folder.
fn remount(mounted: &OwnedFd, flags: MountFlags) -> io::Result<()> {
    let kept = repeated_flags(fstatvfs(mounted)?.f_flag);
    fchdir(mounted)?;
    let changed = mount_remount(".", MountFlags::BIND | kept | flags, c"");
    std::env::set_current_dir("/")?;
    Ok(changed?)
}

/// Mounts an open folder at a path. Creates the mount point, which can only be missing below a mask. Returns the root
/// of the mount. The path can lead through a folder that other agents change, so this follows no link in it.
fn show(source: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    attach_at(copy_tree(source)?, path)
}

/// As [`show`], for a copy.
fn attach_at(tree: OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let point = open_or_create(path)?;
    let by_descriptors =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", &point, "", by_descriptors)?;
    Ok(tree)
}

/// Mounts an open file at a path.
fn attach(source: &OwnedFd, path: &Path) -> io::Result<()> {
    let tree = copy_tree(source)?;
    let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(&tree, "", CWD, path, by_descriptor)?)
}

/// A copy of an open folder or file that can be mounted.
fn copy_tree(source: &OwnedFd) -> io::Result<OwnedFd> {
    // The copy includes nested mounts: the kernel refuses to separate them from their parent.
    let copy = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(source, "", copy)?)
}

/// Makes the mounts of control groups read-only, and all mounts that the child must not change.
fn make_read_only(model: &AccessModel, mounts: &MountTable) -> io::Result<()> {
    for mount in mounts.iter() {
        let Mount { point, .. } = &mount;
        if !mount.is_control_groups() && !model.is_read_only(point) {
            continue;
        }
        // A remount must repeat the flags of the mount, without `RDONLY`.
        let flags = statvfs(point).map(|mount| repeated_flags(mount.f_flag));
        let flags = flags.map(|flags| flags | MountFlags::BIND | MountFlags::RDONLY);
        match flags.and_then(|flags| mount_remount(point, flags, c"")) {
            // A mount that this user cannot reach, or that another one covers. The check follows.
            Ok(()) | Err(Errno::ACCESS | Errno::NOENT | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn repeated_flags(flags: StatVfsMountFlags) -> MountFlags {
    let repeated = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let set = repeated
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag));
    set.fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

fn failed(path: &Path, error: io::Error) -> SupervisorError {
    let source = if FolderError::inside(&error).is_some() {
        error
    } else {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    SupervisorError::at("mount")(source)
}
