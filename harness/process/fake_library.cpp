/// A library of the product in two builds, for tests of the loader's environment.
extern "C" const char* fake_nsa_name();
extern "C" const char* fake_nsa_name() { return FAKE_NAME; }
