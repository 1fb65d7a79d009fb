// Gives the targets of precompiled headers (cmake/NsaSharedHeaders.cmake) a translation unit.
