//! NUMA nodes of the host, and which threads of a pool run on which.
//!
//! Threads of neighbouring numbers have neighbouring tasks ([`workers`](super::workers)), so each node has a range of them: what a thread
//! writes first is memory of its node, and what it reads of its neighbours' mostly is. On a host with one node threads run where the system puts them.
#![allow(unsafe_code)]
#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

use std::path::Path;

/// Where Linux tells of nodes.
#[cfg(target_os = "linux")]
const NODES: &str = "/sys/devices/system/node";

/// The processors of a node that this process may use, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NumaDomain {
    cpus: Vec<usize>,
}

/// The nodes of the host that have processors for this process; none where the system does not tell.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct NumaDomains(Vec<NumaDomain>);

impl NumaDomains {
    /// Those of this host, the caller's first.
    pub(super) fn of_host() -> NumaDomains {
        #[cfg(target_os = "linux")]
        {
            let allowed = affinity::allowed();
            let nodes = NumaDomains::read(Path::new(NODES), &|cpu| allowed.contains(&cpu));
            affinity::current().map_or(nodes.clone(), |cpu| nodes.beginning_with(cpu))
        }
        #[cfg(not(target_os = "linux"))]
        NumaDomains::default()
    }

    /// Those that a folder tells of, as Linux has it: `nodeN/cpulist`, with lists such as `0-3,8`. Nodes without processors that are
    /// `allowed` are left out. Nothing is known where a file cannot be read or says something else.
    fn read(folder: &Path, allowed: &dyn Fn(usize) -> bool) -> NumaDomains {
        let number = |name: &str| name.strip_prefix("node")?.parse::<usize>().ok();
        let Ok(entries) = std::fs::read_dir(folder) else { return NumaDomains::default() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut numbers: Vec<usize> = names.filter_map(|name| number(&name)).collect();
        numbers.sort_unstable();
        let node = |n: usize| {
            let list = std::fs::read_to_string(folder.join(format!("node{n}/cpulist"))).ok()?;
            let cpus = cpu_list(list.trim())?.into_iter().filter(|&cpu| allowed(cpu)).collect();
            Some(NumaDomain { cpus })
        };
        let nodes: Option<Vec<NumaDomain>> = numbers.into_iter().map(node).collect();
        let nodes = nodes.unwrap_or_default();
        NumaDomains(nodes.into_iter().filter(|node| !node.cpus.is_empty()).collect())
    }

    /// The same, from the node of a processor on.
    fn beginning_with(mut self, cpu: usize) -> NumaDomains {
        let first = self.0.iter().position(|node| node.cpus.contains(&cpu));
        self.0.rotate_left(first.unwrap_or(0));
        self
    }

    /// The node of a thread of this many: ranges of neighbours, as long as nodes have processors. `None` where there are not several nodes.
    fn of_thread(&self, thread: usize, threads: usize) -> Option<&NumaDomain> {
        if self.0.len() < 2 {
            return None;
        }
        let all: usize = self.0.iter().map(|node| node.cpus.len()).sum();
        // The processor that the thread would have, if these were numbered node by node and threads spread over them evenly.
        let mut place = thread * all / threads.max(1);
        self.0.iter().find(|node| {
            let within = place < node.cpus.len();
            place = place.wrapping_sub(if within { 0 } else { node.cpus.len() });
            within
        })
    }

    /// Lets the calling thread, of this number among this many, run on its node alone. A system that refuses leaves it where it is.
    pub(super) fn settle(&self, thread: usize, threads: usize) {
        if let Some(node) = self.of_thread(thread, threads) {
            #[cfg(target_os = "linux")]
            affinity::run_on(&node.cpus);
            #[cfg(not(target_os = "linux"))]
            let _ = node;
        }
    }
}

/// The numbers of a list such as `0-3,8`; `None` where it is none.
fn cpu_list(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        if from > to || to - from > MOST_CPUS {
            return None;
        }
        all.extend(from..=to);
    }
    Some(all)
}

/// More processors than any host has.
const MOST_CPUS: usize = 1 << 16;

#[cfg(target_os = "linux")]
mod affinity {
    /// The processors that the calling thread may use.
    pub(super) fn allowed() -> Vec<usize> {
        // SAFETY: the set is plain data, and as large as is said.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
                return Vec::new();
            }
            (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
        }
    }

    /// The processor that the calling thread is on.
    pub(super) fn current() -> Option<usize> {
        // SAFETY: nothing is asked of the caller.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Lets the calling thread run on these processors alone.
    pub(super) fn run_on(cpus: &[usize]) {
        // SAFETY: the set is plain data, as large as is said, and has room for these numbers.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
                libc::CPU_SET(cpu, &mut set);
            }
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A folder as Linux has it, of nodes with these lists.
    fn folder(name: &str, lists: &[(&str, &str)]) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("adfuse-numa-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("online"), "0-1\n").expect("a file");
        for (node, list) in lists {
            fs::create_dir_all(folder.join(node)).expect("a folder");
            fs::write(folder.join(node).join("cpulist"), list).expect("a file");
        }
        folder
    }

    fn nodes(name: &str, lists: &[(&str, &str)]) -> NumaDomains {
        let folder = folder(name, lists);
        let nodes = NumaDomains::read(&folder, &|cpu| cpu != 9);
        fs::remove_dir_all(folder).expect("the folder");
        nodes
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(cpu_list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(cpu_list(""), Some(vec![]));
        for wrong in ["a", "3-1", "1-", "-", "0-99999999999", "0-9999999"] {
            assert_eq!(cpu_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nodes_are_in_order_and_have_the_processors_that_are_allowed() {
        let found = nodes("order", &[("node10", "9,20-21"), ("node2", "0-1\n"), ("node3", "9\n")]);
        let cpus: Vec<Vec<usize>> = found.0.iter().map(|node| node.cpus.clone()).collect();
        assert_eq!(cpus, [vec![0, 1], vec![20, 21]]);
        assert_eq!(found.clone().beginning_with(21).0[0].cpus, [20, 21]);
        assert_eq!(found.clone().beginning_with(5), found);
    }

    #[test]
    fn what_cannot_be_read_is_no_node() {
        assert_eq!(nodes("wrong", &[("node0", "0-1"), ("node1", "x")]), NumaDomains::default());
        let absent = Path::new("/there/is/no/such/folder");
        assert_eq!(NumaDomains::read(absent, &|_| true), NumaDomains::default());
    }

    #[test]
    fn neighbours_share_a_node_and_one_node_changes_nothing() {
        let two = nodes("two", &[("node0", "0-3"), ("node1", "4-7")]);
        let of = |nodes: &NumaDomains, threads: usize| -> Vec<Option<usize>> {
            let first = |k| nodes.of_thread(k, threads).map(|node: &NumaDomain| node.cpus[0]);
            (0..threads).map(first).collect()
        };
        let (a, b) = (Some(0), Some(4));
        assert_eq!(of(&two, 8), [a, a, a, a, b, b, b, b]);
        assert_eq!(of(&two, 2), [a, b]);
        assert_eq!(of(&two, 3), [a, a, b]);
        assert_eq!(of(&two, 12), [a, a, a, a, a, a, b, b, b, b, b, b]);
        let uneven = nodes("uneven", &[("node0", "0-5"), ("node1", "6-7")]);
        assert_eq!(of(&uneven, 4), [Some(0), Some(0), Some(0), Some(6)]);
        let one = nodes("one", &[("node0", "0-7"), ("node1", "9")]);
        assert_eq!(of(&one, 8), [None; 8]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_runs_where_it_is_settled() {
        let allowed = affinity::allowed();
        let node = |cpu: usize| NumaDomain { cpus: vec![cpu] };
        let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
        let both = NumaDomains(vec![node(first), node(last)]);
        let found = std::thread::spawn(move || {
            both.settle(1, 2);
            affinity::allowed()
        });
        assert_eq!(found.join().expect("no panic"), [last]);
        assert_eq!(affinity::allowed(), allowed);
    }
}
