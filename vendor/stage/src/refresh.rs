//! `patches refresh`: writes the commits of the work tree back as patches, without changing a byte that need not change.

use crate::checkout::{PRISTINE, pristine_message};
use crate::error::{Error, IoContext, Result};
use crate::git::Git;
use crate::hooks::{self, Places};
use crate::patch::Patch;
use crate::upstream::{Repo, Upstream};
use crate::{compose, fsx, series};
use std::path::Path;

/// What `patches refresh` did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Patches that came out as they were.
    pub kept: Vec<String>,
    /// Patches that were written.
    pub written: Vec<String>,
    /// Patches without a commit, which were deleted.
    pub removed: Vec<String>,
    /// Whether `series` was written.
    pub series_written: bool,
}

/// A commit of the work tree.
struct Commit {
    id: String,
    parent: String,
    /// Day of the commit, YYYY-MM-DD.
    day: String,
    author: String,
    subject: String,
    body: String,
}

/// Writes the work tree `dir` back to `repo`'s patches: one patch per commit, in their order. A patch is called what the first
/// line of its commit's message says. Its header is that of the patch that is there, else what stands below that line, else
/// it is made up from the message. All patches are checked before the first one is written.
///
/// # Errors
/// [`Error::Checkout`] where something is not committed, or where the work tree is of another upstream; [`Error::Patch`] and the
/// like where a commit does more than add lines.
pub fn refresh(repo: &Repo, upstream: &Upstream, dir: &Path) -> Result<Refreshed> {
    let git = Git::new(dir);
    require_ready(&git, upstream, dir)?;
    let old_series = std::fs::read_to_string(repo.patches().join("series")).unwrap_or_default();
    let mut patches: Vec<Patch> = Vec::new();
    for commit in commits(&git, dir)? {
        let patch = patch_of(repo, upstream, &git, &commit, dir)?;
        if patches.iter().any(|other| other.name == patch.name) {
            let reason = format!(
                "two commits are called {}; squash them with `git rebase -i {PRISTINE}`",
                patch.name
            );
            return Err(Error::Checkout {
                dir: dir.to_owned(),
                reason,
            });
        }
        patches.push(patch);
    }
    check_hooks(&git, dir, &patches)?;
    write(repo, &old_series, &patches)
}

fn require_ready(git: &Git, upstream: &Upstream, dir: &Path) -> Result<()> {
    let refused = |reason: String| {
        Err(Error::Checkout {
            dir: dir.to_owned(),
            reason,
        })
    };
    if !dir.join(".git").is_dir() {
        return refused("is not open; run `cargo xtask patches open` first".to_owned());
    }
    if dir.join(".git/rebase-merge").exists() || dir.join(".git/rebase-apply").exists() {
        return refused("a rebase is under way; finish it with `git rebase --continue`, or drop it with `--abort`".to_owned());
    }
    let changed = git.run(["status", "--porcelain"])?;
    if !changed.is_empty() {
        let files: Vec<&str> = changed
            .lines()
            .take(5)
            .map(|line| line.get(3..).unwrap_or(line))
            .collect();
        let files = files.join(", ");
        return refused(format!(
            "has changes that are not committed ({files}); commit them, or amend the commit of their patch"
        ));
    }
    let opened = git.run(["log", "-1", "--format=%B", PRISTINE])?;
    if opened.trim() != pristine_message(upstream).trim() {
        return refused(format!(
            "was opened from {}, but vendor/UPSTREAM.toml now says {}; delete the folder and open it again",
            opened.trim(),
            upstream.base()
        ));
    }
    Ok(())
}

fn commits(git: &Git, dir: &Path) -> Result<Vec<Commit>> {
    let range = format!("{PRISTINE}..HEAD");
    let ids = git.run(["rev-list", "--reverse", "--topo-order", &range])?;
    let mut commits = Vec::new();
    for id in ids.lines() {
        let text = git.run(["log", "-1", "--format=%P%n%cs%n%an%n%B", id])?;
        let mut lines = text.splitn(4, '\n');
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (parent, day, author, message) = (next(), next(), next(), next());
        if parent.contains(' ') {
            let reason = format!(
                "the commit {id} is a merge; the patches are one line of commits: rebase it"
            );
            return Err(Error::Checkout {
                dir: dir.to_owned(),
                reason,
            });
        }
        let (subject, body) = message.split_once('\n').unwrap_or((&message, ""));
        let (subject, body) = (
            subject.trim().to_owned(),
            body.trim_matches('\n').to_owned(),
        );
        commits.push(Commit {
            id: id.to_owned(),
            parent,
            day,
            author,
            subject,
            body,
        });
    }
    Ok(commits)
}

fn patch_of(
    repo: &Repo,
    upstream: &Upstream,
    git: &Git,
    commit: &Commit,
    dir: &Path,
) -> Result<Patch> {
    let name = compose::name(&commit.subject);
    let refused = |what: &str| {
        let reason = format!("the commit {:?} {what}", commit.subject);
        Err(Error::Checkout {
            dir: dir.to_owned(),
            reason,
        })
    };
    if !series::name_is_good(&name) {
        return refused(
            "is not called like a patch; amend its first line to a name such as core/kv-window-hook.patch",
        );
    }
    let options = [
        "diff",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        "--unified=3",
    ];
    let prefixes = [
        "--src-prefix=a/",
        "--dst-prefix=b/",
        "--diff-algorithm=myers",
        "--indent-heuristic",
    ];
    let diff = git.run(
        options
            .into_iter()
            .chain(prefixes)
            .chain([commit.parent.as_str(), commit.id.as_str()]),
    )?;
    if diff.is_empty() {
        return refused(&format!(
            "changes nothing; make its change and squash it into that commit, or drop it: `git rebase -i {PRISTINE}`"
        ));
    }
    let diff = compose::plain_diff(&diff);
    let old = Patch::read(&repo.patches(), &name).ok();
    if let Some(old) = &old
        && fits(git, commit, old)?
    {
        return Ok(old.clone());
    }
    let hooks: Vec<&str> = diff
        .lines()
        .filter(|line| line.starts_with('+'))
        .filter_map(hooks::marker)
        .collect();
    let facts = compose::Facts {
        day: &commit.day,
        author: &commit.author,
        base: upstream,
        hooks: &hooks,
    };
    let header = match &old {
        Some(old) => compose::updated(&old.header_text, &facts),
        None => compose::from_message(&commit.subject, &commit.body, &facts),
    };
    Patch::parse(&name, repo.patches().join(&name), format!("{header}{diff}"))
}

/// Whether `patch` makes exactly the commit's change out of its parent.
fn fits(git: &Git, commit: &Commit, patch: &Patch) -> Result<bool> {
    let changed = git.run([
        "diff",
        "--name-only",
        "--no-renames",
        &commit.parent,
        &commit.id,
    ])?;
    let mut targets: Vec<&str> = patch
        .files
        .iter()
        .map(|file| file.target.as_str())
        .collect();
    targets.sort_unstable();
    if changed.lines().collect::<Vec<_>>() != targets {
        return Ok(false);
    }
    for file in &patch.files {
        let show = |id: &str| git.run(["show".to_owned(), format!("{id}:{}", file.target)]);
        let (before, after) = (show(&commit.parent)?, show(&commit.id)?);
        if file.apply(before.as_bytes()).ok().as_deref() != Some(after.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check_hooks(git: &Git, dir: &Path, patches: &[Patch]) -> Result<()> {
    let mut places = Places::default();
    for name in git.run(["ls-files", "-z"])?.split_terminator('\0') {
        let path = dir.join(name);
        places.add(name, &std::fs::read(&path).at("read", &path)?);
    }
    places.check(patches)
}

fn write(repo: &Repo, old_series: &str, patches: &[Patch]) -> Result<Refreshed> {
    let mut done = Refreshed::default();
    let dir = repo.patches();
    for patch in patches {
        let written = fsx::write_if_changed(&dir.join(&patch.name), patch.text.as_bytes())?;
        if written {
            &mut done.written
        } else {
            &mut done.kept
        }
        .push(patch.name.clone());
    }
    let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
    let text = compose::series(old_series, &names);
    done.series_written = fsx::write_if_changed(&dir.join("series"), text.as_bytes())?;
    for (_, name) in series::names(old_series) {
        let path = dir.join(name);
        if !names.contains(&name) && path.is_file() {
            std::fs::remove_file(&path).at("delete", &path)?;
            done.removed.push(name.to_owned());
        }
    }
    Ok(done)
}
