package rowcache

// Sightings is how often a row is offered before the cache keeps it.
const Sightings = sightings
