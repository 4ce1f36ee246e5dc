//! The good engine passes, and what is broken on purpose is noticed.

use monolite_testkit::markers;

use super::*;

fn examined(arrangement: Arrangement, images: u64) -> Examined {
    let directory = tempfile::tempdir().unwrap();
    let life = Life { seed: fastrand::u64(..), images, arrangement };
    live(&life, directory.path(), &|| {}, &|| false).unwrap()
}

#[test]
fn a_good_engine_loses_nothing() {
    let examined = examined(Arrangement::Good, 60);
    let wrong: Vec<_> = examined.seen.iter().map(|seen| seen.wrong.to_string()).collect();
    assert_eq!((wrong, examined.complaints), (vec![], vec![]));
    assert_eq!(examined.images, 60);
    assert!(examined.acknowledged > 0);
}

#[test]
fn every_bad_arrangement_is_noticed() {
    for (arrangement, name) in Arrangement::BAD {
        let is_noticed = |_| !examined(arrangement, CONTROL_IMAGES).seen.is_empty();
        assert!((0..CONTROL_LIVES).any(is_noticed), "{name}");
    }
}

#[test]
fn an_image_that_was_examined_is_as_it_was() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = Disk::empty(RealSyncs::Skipped);
    let db = disk.under(Options::new().readers(1)).open(directory.path().join("db"))?;
    db.write(super::super::survivors::create).wait()?;
    let mut place = Place::new(directory.path().join("image"));
    for id in 1..20 {
        db.write(move |tx| markers::put_filled(tx, id, &[1; 3_000])).wait()?;
        let image = disk.capture().image(Left::Everything, &mut Rng::new());
        let path = place.put(&image)?;
        assert_eq!(examine(path).unwrap().len() as i64, id);
        assert!(Image::read_from(path)? == image);
    }
    Ok(())
}
