// Gives the precompiled-header target and the library a first translation unit.
