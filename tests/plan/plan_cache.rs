//! The plan cache: damaged or foreign entries are never used, writers do not disturb each other, and a folder does not
//! grow without bound.

use adfuse::fusion::{Effort, Fp, MachineModel, PlanOptions};
use adfuse::plan_cache::{CachedPlan, Lookup, PlanCache, PlanKey};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("plan-cache-{}-{name}", std::process::id());
        Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options() -> PlanOptions {
    PlanOptions { device: MachineModel::cpu(), effort: Effort::Default, fp: Fp::Strict }
}

fn key(budget: u64) -> PlanKey {
    PlanKey::new("00ff", "cpu", &options(), budget)
}

fn entry(text: &str) -> CachedPlan {
    CachedPlan {
        plan: format!("plan @f {{\n  graph {text}\n}}\n"),
        fastest_seconds: 0.1,
        fastest_peak: 7,
    }
}

#[test]
fn an_entry_is_found_by_all_that_its_plan_depends_on() {
    let folder = Folder::new("keys");
    let cache = PlanCache::new(&folder.0);
    let plain = options();
    let mut fast = plain.clone();
    fast.device.launch_s *= 1.5;
    let with = |change: fn(&mut PlanOptions)| {
        let mut options = plain.clone();
        change(&mut options);
        options
    };
    // A machine of the same name with other numbers is another.
    let keys = [
        PlanKey::new("00ff", "cpu", &plain, 100),
        PlanKey::new("00fe", "cpu", &plain, 100),
        PlanKey::new("00ff", "any", &plain, 100),
        PlanKey::new("00ff", "cpu", &plain, 101),
        PlanKey::new("00ff", "cpu", &fast, 100),
        PlanKey::new("00ff", "cpu", &with(|o| o.fp = Fp::Fast), 100),
        PlanKey::new("00ff", "cpu", &with(|o| o.effort = Effort::Quick), 100),
        PlanKey::new("00ff", "cpu", &with(|o| o.device.contract_epilogue = false), 100),
    ];
    for (k, key) in keys.iter().enumerate() {
        assert_eq!(cache.find(key), Lookup::Absent, "{k}");
        cache.keep(key, &entry(&k.to_string())).expect("kept");
    }
    for (k, key) in keys.iter().enumerate() {
        assert_eq!(cache.find(key), Lookup::Found(entry(&k.to_string())), "{k}");
    }
    let listed = cache.list().expect("a folder");
    assert_eq!(listed.len(), keys.len());
    for one in &listed {
        let said = one.key.as_ref().expect("sound");
        assert_eq!(said[0], ("function".to_string(), "@f".to_string()), "{said:?}");
    }
}

#[test]
fn what_is_damaged_or_foreign_is_not_used_and_is_replaced() {
    let folder = Folder::new("damaged");
    let cache = PlanCache::new(&folder.0);
    cache.keep(&key(1), &entry("good")).expect("kept");
    let name = folder.names().remove(0);
    let path = folder.0.join(&name);
    let good = fs::read_to_string(&path).expect("text");
    cache.keep(&key(2), &entry("other")).expect("kept");
    let foreign = folder.names().into_iter().find(|n| *n != name).expect("another");
    let foreign = fs::read_to_string(folder.0.join(foreign)).expect("text");
    // Every cut, and a change of every byte.
    let mut damaged: Vec<(Vec<u8>, &str)> =
        (0..good.len()).map(|n| (good.as_bytes()[..n].to_vec(), "")).collect();
    for k in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[k] ^= 1;
        damaged.push((bytes, ""));
    }
    damaged.push((foreign.into_bytes(), "it is for something else"));
    damaged.push((good.replace("@f", "@g").into_bytes(), "its checksum is wrong"));
    damaged.push((b"\xff\xfe".to_vec(), "it is no text"));
    damaged.push((vec![b'x'; 4096], "it is cut off"));
    for (bytes, said) in damaged {
        fs::write(&path, &bytes).expect("written");
        match cache.find(&key(1)) {
            Lookup::Spoiled(why) if why.contains(said) && why.starts_with(&name) => {}
            found => panic!("{found:?} of {}", String::from_utf8_lossy(&bytes)),
        }
        let listed = cache.list().expect("a folder");
        let spoiled = listed.iter().find(|l| l.name == name).expect("listed");
        assert_eq!(spoiled.key.is_err(), said != "it is for something else", "{spoiled:?}");
    }
    cache.keep(&key(1), &entry("good")).expect("kept");
    assert_eq!(cache.find(&key(1)), Lookup::Found(entry("good")));
    // What is no file is no entry, and stands in the way of one.
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    assert!(matches!(cache.find(&key(1)), Lookup::Spoiled(_)));
    assert!(cache.keep(&key(1), &entry("good")).is_err());
}

#[test]
fn writers_at_once_leave_whole_entries() {
    let folder = Folder::new("writers");
    let cache = PlanCache::new(&folder.0);
    let long = |k: usize| entry(&k.to_string().repeat(100_000));
    std::thread::scope(|s| {
        for k in 0..4 {
            let cache = &cache;
            s.spawn(move || (0..10).for_each(|_| cache.keep(&key(1), &long(k)).expect("kept")));
        }
        for _ in 0..200 {
            match cache.find(&key(1)) {
                Lookup::Absent => {}
                Lookup::Found(found) => assert!((0..4).any(|k| found == long(k))),
                Lookup::Spoiled(why) => panic!("{why}"),
            }
        }
    });
    assert_eq!(folder.names().len(), 1, "{:?}", folder.names());
}

#[test]
fn the_oldest_entries_go_and_other_files_stay() {
    let folder = Folder::new("bounded");
    let cache = PlanCache::new(&folder.0);
    cache.keep(&key(0), &entry("0")).expect("kept");
    let bytes = fs::metadata(folder.0.join(&folder.names()[0])).expect("there").len();
    let cache = cache.with_most_bytes(4 * bytes);
    let mut before = SystemTime::now() - Duration::from_secs(1000);
    for k in 1..10 {
        cache.keep(&key(k), &entry(&k.to_string())).expect("kept");
        // Clocks of file systems may be coarse.
        for l in cache.list().expect("a folder") {
            let says =
                |w: &str| l.key.as_ref().ok()?.iter().find(|(k, _)| k == w).map(|(_, s)| s.clone());
            if says("budget") == Some(k.to_string()) {
                before += Duration::from_secs(10);
                let file = fs::File::options().write(true).open(folder.0.join(&l.name));
                file.and_then(|f| f.set_modified(before)).expect("touched");
            }
        }
    }
    let there: Vec<u64> =
        (0..10).filter(|&k| matches!(cache.find(&key(k)), Lookup::Found(_))).collect();
    assert_eq!(there.len(), 4, "{there:?}");
    assert!(there.ends_with(&[7, 8, 9]), "{there:?}");
    // One that is larger than all may be is not kept, and takes no other's place.
    cache.keep(&key(20), &entry(&"x".repeat(5 * bytes as usize))).expect("no error");
    assert_eq!(cache.find(&key(20)), Lookup::Absent);
    assert_eq!(cache.list().expect("a folder").len(), 4);
    // A writer that did not end well is cleaned up after, other files are nobody's business.
    let left = format!(".{}.1-0.tmp", folder.names()[0]);
    fs::write(folder.0.join(&left), "half").expect("written");
    let old = fs::File::options().write(true).open(folder.0.join(&left)).expect("there");
    old.set_modified(SystemTime::now() - Duration::from_secs(8000)).expect("touched");
    fs::write(folder.0.join("notes.txt"), "mine").expect("written");
    fs::write(folder.0.join("mine.adfuse-plan"), "mine").expect("written");
    cache.keep(&key(9), &entry("9")).expect("kept");
    assert!(!folder.names().contains(&left), "{:?}", folder.names());
    assert_eq!(cache.clear().expect("a folder"), 4);
    assert_eq!(folder.names(), ["mine.adfuse-plan", "notes.txt"]);
}
