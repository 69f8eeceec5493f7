//! The words between the scopes of two nodes, as terms.

use crate::term::{NodePid, Term};

/// What the scope of another node says.
#[derive(Debug)]
pub(super) enum Said<'a> {
    Discover,
    /// The group, and the processes that join it.
    Join(&'a Term, &'a [Term]),
    /// The processes, and the groups that they leave.
    Leave(&'a [Term], &'a [Term]),
    /// All members of the node, or some members.
    Sync(&'a [Term], bool),
    Synced,
}

fn message(word: &str, parts: impl IntoIterator<Item = Term>) -> Term {
    Term::tuple([Term::atom(word)].into_iter().chain(parts))
}

/// Asks a scope for its members.
pub(super) fn discover(own: Term) -> Term {
    message("discover", [own])
}

/// Says that processes join a group.
pub(super) fn join(own: Term, group: Term, who: Term) -> Term {
    message("join", [own, group, who])
}

/// Says that a process leaves a group.
pub(super) fn leave(own: Term, who: Term, group: Term) -> Term {
    message("leave", [own, who, Term::List(vec![group])])
}

/// Says which members all groups of this node have. Joins may follow, for a scope of this crate.
pub(super) fn sync(own: Term, groups: Vec<Term>, is_partial: bool) -> Term {
    let partial = is_partial.then(|| Term::atom("partial"));
    let sync = message("sync", [own, Term::List(groups)].into_iter().chain(partial));
    Term::tuple([Term::atom("$gen_cast"), sync])
}

/// Says that all joins after a `sync` were sent.
pub(super) fn synced(own: Term) -> Term {
    message("synced", [own])
}

/// Returns the scope that speaks, and what it says.
pub(super) fn read(term: &Term) -> Option<(&NodePid, Said<'_>)> {
    let (is_cast, term) = match term.as_tuple() {
        Some([head, term]) if head.is_atom("$gen_cast") => (true, term),
        _ => (false, term),
    };
    let [Term::Atom(word), Term::Pid(scope), rest @ ..] = term.as_tuple()? else { return None };
    let said = match (is_cast, word.as_str(), rest) {
        // Later releases of OTP add a version.
        (false, "discover", [] | [_]) => Said::Discover,
        (false, "join", [group, who]) => Said::Join(group, pids(who)),
        (false, "leave", [who, Term::List(groups)]) => Said::Leave(pids(who), groups),
        (true, "sync", [Term::List(groups), partial @ ..]) => {
            Said::Sync(groups, !partial.is_empty())
        }
        (false, "synced", []) => Said::Synced,
        _ => return None,
    };
    Some((scope, said))
}

/// Returns a process, or the processes of a list. Of anything else, none.
pub(super) fn pids(term: &Term) -> &[Term] {
    match term {
        Term::Pid(_) => std::slice::from_ref(term),
        Term::List(items) => items,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::{discover, join, leave, read, sync, synced};
    use crate::release::corpus::{self, pid};
    use crate::term::Term;

    #[test]
    fn words_of_scopes_are_those_of_the_protocol() {
        let (own, member, group) = (|| pid(1).into(), || Term::from(pid(2)), Term::atom("lobby"));
        let members = Term::tuple([group.clone(), Term::list([member()])]);
        let words = [
            discover(own()),
            join(own(), group.clone(), member()),
            join(own(), group.clone(), Term::list([member()])),
            leave(own(), member(), group),
            sync(own(), vec![members.clone()], false),
            sync(own(), vec![members], true),
            synced(own()),
        ];
        corpus::check("groups", &words, |word| read(&word).is_some_and(|(own, _)| *own == pid(1)));
    }
}
